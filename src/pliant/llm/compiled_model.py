"""A model's program with its weights: as an earlier process has kept it (runtime/program_store.py), else compiled, and kept for the next
one.

    model = Ready(open_gguf("model.gguf"), "f16")
    model.config.layers, model.run(threads=2)

With what was kept, no compiler is loaded, and nothing of the model's file is read but its head. The key covers all that decides it: the
model's files (place, size, time of change), the form of the cache, the machine, the compiler's sources and its switches. What was kept of
models that are gone goes when another one is kept.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..frontends.gguf import GgufFile
from ..frontends.gguf.reader import stamp_of
from ..runtime import code_cache as disk
from ..runtime.executable import Executable
from ..runtime.program_store import ProgramStore, StoredProgram
from ..support.record import dataclass

if TYPE_CHECKING:
    from ..target import Target

_SETTLED = 2.0  # seconds after a change in which a file may change again under the same time


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """What the host must know of a decoder."""

    layers: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    context: int


class CompiledModel:
    """A model that is about to run: its numbers are known at once, its program is compiled only when it is asked for."""

    def __init__(self, file: GgufFile, cache: str) -> None:
        from ..target import target

        self._file, self._cache, self._machine = file, cache, target("native")
        self._folder, self._key = model_programs(), _key(file, cache, self._machine)
        self._name = _name(file, cache, repr(self._machine))
        self._kept = self._folder.find(self._name, self._key) if self._folder is not None and self._key else None
        self._model: Any = None  # built at most once: a cold start needs its settings first, then its program
        config = None if self._kept is None else _config(self._kept)
        if config is None:
            s = self._built().settings
            self._kept, config = None, DecoderConfig(s.layers, s.kv_heads, s.head_dim, s.vocab_size, s.context)
        self.config: DecoderConfig = config

    def run(self, threads: int | None = None) -> Executable:
        """The program."""
        from ..provenance import Lineage

        stored = self._kept or self._compiled()
        return Executable(stored.package, threads=threads, constants=stored.constants, lineage=Lineage(self._program, self._machine))

    def _built(self) -> Any:
        """The model over its file's tensors."""
        if self._model is None:
            import pliant

            from .models import build

            self._model = build(self._file, getattr(pliant, self._cache))
        return self._model

    def _program(self) -> Any:
        return self._built().to_program()

    def _compiled(self) -> StoredProgram:
        from ..pipeline import compile_program
        from ..runtime.loading import constants_of

        program = self._program()
        package = compile_program(program)
        constants = constants_of(package, program.constants)
        config = {name: getattr(self.config, name) for name in DecoderConfig.__dataclass_fields__}
        found = StoredProgram(package, constants, {"config": config, "models": [stamp.path for stamp in self._file.stamps]})
        self._model = None  # the program has its weights, and a report builds it again
        if self._folder is not None and self._key:  # the next start needs it, and this one does not wait for it
            threading.Thread(target=_keep, args=(self._folder, self._name, self._key, self._file, found), name="pliant-keep").start()
        return found


def model_programs() -> ProgramStore | None:
    """Where programs with their weights are kept; None without a home."""
    base = disk.folder()
    return None if base is None else ProgramStore(base / "ready")


def forget(path: Path) -> int:
    """Removes what was kept of a model's file; answers how many bytes that frees."""
    folder = model_programs()
    return 0 if folder is None else folder.remove(_place(os.path.realpath(path)))


def _config(kept: StoredProgram) -> DecoderConfig | None:
    """The numbers that were kept; None where they are not those of a decoder."""
    found = kept.facts.get("config")
    if not isinstance(found, dict) or set(found) != set(DecoderConfig.__dataclass_fields__):
        return None
    return DecoderConfig(**found) if all(type(n) is int and 0 < n < 1 << 31 for n in found.values()) else None


def _keep(folder: ProgramStore, name: str, key: bytes, file: GgufFile, program: StoredProgram) -> None:
    """Keeps a program, unless its model has changed meanwhile, or is so new that it may change unseen."""
    for stamp in file.stamps:
        try:
            now = stamp_of(Path(stamp.path), os.stat(stamp.path))
        except OSError:
            return
        if now != stamp or time.time() - stamp.changed / 1e9 < _SETTLED:
            return
    folder.keep(name, key, program)
    folder.sweep(_is_gone)


def _is_gone(facts: Mapping[str, Any]) -> bool:
    """Whether the files of a model are not there any more."""
    models = facts.get("models")
    return not isinstance(models, list) or not all(isinstance(path, str) and os.path.exists(path) for path in models)


def _name(file: GgufFile, cache: str, machine: str) -> str:
    place = _place(file.stamps[0].path) if file.stamps else ""
    return f"{place}-{cache}-{hashlib.sha256(machine.encode()).hexdigest()[:8]}"


def _place(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:24]


def _key(file: GgufFile, cache: str, machine: Target) -> bytes | None:
    """All that decides a program and its weights; None where that cannot be said."""
    patterns = sys.modules.get("pliant.graph.patterns")  # what users register decides it too
    if not file.stamps or (patterns is not None and patterns.REGISTERED):
        return None
    from ..support.compiler_version import compiler_version
    from ..support.settings import read as read_settings
    from ..target.declared import declared_text

    parts = [compiler_version(), repr(machine), declared_text(machine), cache, *sorted(read_settings().disable), *map(repr, file.stamps)]
    return "\n".join(parts).encode()
