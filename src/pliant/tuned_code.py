"""Records of tuning in a compilation: where they are, and the code cache that knows which of them a program takes.

    asked = decisions_of({"c.tile": (6, 2)})      # the user's decisions; all others may come from the user's records
    store = CodeStore(asked)
    store.get(key) or store.put(key, payload)

A program's kernels are known only after most of its compilation, and the code cache is asked before it. So beside its code the cache
keeps which kernels a program has (their `KernelKey`s). The records that these get now are part of the key of the code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .runtime import code_cache
from .schedule.decisions import Decisions
from .schedule.records import FILE, CarriedRecords, Found, KernelKey, Reader, Record, Records
from .support.settings import read as read_settings

_KERNELS = b"kernels that records may be about\n"  # first line of the key of such a list


def records_path() -> Path | None:
    """Returns the file of the user's records; None without a cache folder."""
    folder = code_cache.folder()
    return None if folder is None else folder / FILE


def decisions_of(
    values: Mapping[str, Any] | None = None, effort: str = "full", carried: Sequence[str] | None = (), accuracy: str = "full"
) -> Decisions:
    """Returns the decisions of a compilation, with the user's records, and those that the program carries.

    `PLIANT_DISABLE=records` leaves records out, and so does None for those that are carried.
    """
    if carried is None or effort != "full" or "records" in read_settings().disable:
        return Decisions(values, effort, accuracy)
    path = records_path()
    own = None if path is None or not os.path.isfile(path) else Records(path)
    records: Reader | None = CarriedRecords(carried, own) if carried else own or None
    return Decisions(values, effort, accuracy, None if records is None else _Asked(records))


class _Asked:
    """A reader that remembers which kernels it was asked about."""

    def __init__(self, records: Reader) -> None:
        self.records = records
        self.kernels: dict[KernelKey, Found | None] = {}

    def find(self, key: KernelKey) -> Found | None:
        """Returns the record that serves a kernel, None if there is none."""
        if key not in self.kernels:
            self.kernels[key] = self.records.find(key)
        return self.kernels[key]


class CodeStore:
    """The code cache as one compilation sees it: the records that a program takes are part of the key of its code."""

    def __init__(self, asked: Decisions) -> None:
        self.records = asked.records if isinstance(asked.records, _Asked) else None

    def get(self, key: bytes) -> bytes | None:
        """Returns the code of a program with the records that it would take now; None if the cache has none."""
        if self.records is None:
            return code_cache.get(key)
        kernels = _kernels(code_cache.get(_KERNELS + key))
        return None if kernels is None else code_cache.get(key + self._taken(kernels))

    def put(self, key: bytes, payload: bytes) -> None:
        """Stores the code of a program that was compiled with these records."""
        if self.records is None:
            code_cache.put(key, payload)
            return
        kernels = list(self.records.kernels)
        code_cache.put(_KERNELS + key, json.dumps(kernels).encode())
        code_cache.put(key + self._taken(kernels), payload)

    def _taken(self, kernels: Sequence[KernelKey]) -> bytes:
        """Returns the part of a key that says which records the kernels take; nothing if they take none."""
        assert self.records is not None
        found = [(n, self.records.find(k)) for n, k in enumerate(kernels)]
        taken = [(n, f.record.line(), f.remark, *_missing(f.record)) for n, f in found if f is not None]
        return f"\nrecords {json.dumps(taken)}".encode() if taken else b""


def _missing(record: Record) -> list[str]:
    """Returns the modules of a record that are not known here: without them, the code is that of the rules."""
    if not record.modules:
        return []
    from .schedule.spaces.replay import is_known

    return [name for name in record.modules if not is_known(name)]


def _kernels(data: bytes | None) -> list[KernelKey] | None:
    """Parses the list of kernels of a program; None if there is none."""
    return None if data is None else [KernelKey(form, tuple(sizes)) for form, sizes in json.loads(data)]
