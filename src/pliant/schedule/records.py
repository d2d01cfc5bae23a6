"""Records of tuning: which decisions were measured to be fast for a kernel, and the reader that a compilation asks.

    records = Records(folder / FILE)                    # a database of `tune/database.py`; any trouble with it means: no records
    found = records.find(kernel_key(func, target))      # Found(record, "") or Found(record, "for sizes 384, 1536"), or None
    found.record.decisions                              # {"0.tile": (6, 2)}: by the number of a block in the program

A record belongs to a kernel as it is scheduled, under the layouts of its operands, with its sizes opened (`KernelKey`). It only prefers
some legal values of decisions that keep the bits of results. So a record can be old, from another machine or forged: a value outside of a
domain is replaced by the nearest one, and a decision that reorders a sum is not taken from a record. Nothing in it is code.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import quote

from ..support.errors import ModelFileError
from .domains import Value

if TYPE_CHECKING:
    import sqlite3

    from ..loop.stmt import Func
    from ..target import Target

FILE = "records.sqlite"
SCHEMA = 1  # `user_version` of the database; a reader takes no other
FORMAT = 1  # of a record as text
REVISION = 1  # of the built-in rules: what their decisions mean. Change it if a value comes to mean another schedule
HINTS = ("tile",)  # annotations that only say what a rule would choose by itself
LONGEST = 1 << 16  # characters of a record
MOST = 256  # decisions of a record, sizes of a kernel, and records of one form that are looked at
NEAR = 2.0  # a record serves other sizes if none differs by more than this factor


class KernelKey(NamedTuple):
    """What a record is about: a hash of the kernel with its sizes opened, of the target and of the rules; and the sizes."""

    form: str
    sizes: tuple[int, ...]


class Record(NamedTuple):
    """A measured choice of decisions for one kernel."""

    key: KernelKey
    decisions: Mapping[str, Value]  # `<number of the block>.<what>`
    ratio: float  # time to that of the defaults, in the same minutes
    at: tuple[Mapping[str, int], ...]  # the values of the dims where it was measured
    seconds: float  # of the default at these dims, on one thread
    kernel: str = ""  # the name of the kernel in the program that was tuned, for people
    target: str = ""
    modules: tuple[str, ...] = ()  # that made the schedule, with these decisions; none where the rules did

    def line(self) -> str:
        """Return the record as a line of JSON."""
        shown = {"format": FORMAT, "form": self.key.form, "sizes": self.key.sizes, **self._asdict()}
        del shown["key"]
        if not self.modules:
            del shown["modules"]
        return json.dumps(shown, sort_keys=True, ensure_ascii=True)

    def described(self) -> str:
        """Return for people what was measured, where, and what it gains."""
        names = list(dict.fromkeys(name for dims in self.at for name in dims))
        dims = ", ".join(f"{n} = {'/'.join(map(str, dict.fromkeys(d[n] for d in self.at if n in d)))}" for n in names)
        return f"{100 * self.ratio:.0f} % of the default's time" + (f", measured at {dims}" if dims else "")


class Found(NamedTuple):
    """A record that serves a kernel, and a remark if it was measured for other sizes."""

    record: Record
    remark: str = ""


class Reader(Protocol):
    """The interface of what a compilation asks for records."""

    def find(self, key: KernelKey) -> Found | None:
        """Return the record that serves a kernel, None if there is none."""


def kernel_key(func: Func, target: Target) -> KernelKey:
    """Return the key of a loop program that is about to be scheduled for a target."""
    from ..loop.structural import opened
    from .library import declared_rules_text

    form, sizes = opened(func, HINTS)
    facts = repr((REVISION, declared_rules_text(), replace(target, name="")))
    return KernelKey(hashlib.sha256(form + facts.encode()).hexdigest(), sizes)


def parse(line: str) -> Record:
    """Parse a record from a line of JSON; raise ModelFileError if it is none, or of another format."""
    try:
        if len(line) > LONGEST:
            raise ValueError("it is too long")
        data = json.loads(line)
        if data["format"] != FORMAT:
            raise ValueError(f"it has format {data['format']!r}; format {FORMAT} is expected")
        key = KernelKey(_hash(data["form"]), _whole_numbers(data["sizes"]))
        decisions = {_text(name): _value(v) for name, v in _bounded(data["decisions"]).items()}
        at = tuple({_text(name): _whole(v) for name, v in _bounded(dims).items()} for dims in _bounded(data["at"]))
        numbers = [_positive(data[name]) for name in ("ratio", "seconds")]
        modules = tuple(_text(name) for name in _bounded(data.get("modules", [])))
        return Record(key, decisions, numbers[0], at, numbers[1], _text(data["kernel"]), _text(data["target"]), modules)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ModelFileError("this is no record of tuning", facts=[f"{type(error).__name__}: {error}"[:200]]) from None


class CarriedRecords:
    """Records in memory: those that came with a file. They serve where `others` have none of the same sizes.

    Schedules of modules are not taken from files: that they have the bits of the default was measured on another machine.
    """

    def __init__(self, lines: Iterable[str], others: Reader | None = None) -> None:
        self.records = [r for line in lines if not (r := parse(line)).modules]
        self.others = others

    def find(self, key: KernelKey) -> Found | None:
        """Return the record that serves a kernel, None if there is none."""
        other = None if self.others is None else self.others.find(key)
        if other is not None and not other.remark:
            return other
        return nearest(key, [r for r in self.records if r.key.form == key.form]) or other


class Records:
    """The reader of a database of records. A database that is not there, damaged, or of another version has none."""

    def __init__(self, path: Path) -> None:
        self._connection = _opened(path)

    def __bool__(self) -> bool:
        return self._connection is not None

    def find(self, key: KernelKey) -> Found | None:
        """Return the record of a kernel: for its sizes, else for the nearest ones; None if there is none."""
        if self._connection is None:
            return None
        import sqlite3  # Python can be built without it; then there is no connection

        try:
            rows = self._connection.execute("SELECT line FROM records WHERE form = ? LIMIT ?", (key.form, MOST)).fetchall()
        except sqlite3.Error:
            return None
        return nearest(key, [r for (line,) in rows if (r := _parsed(line)) is not None and r.key.form == key.form])


def nearest(key: KernelKey, records: Iterable[Record]) -> Found | None:
    """Return the record for the sizes of a kernel, else the one for the nearest sizes, with a remark; None if none is near.

    A schedule of modules serves its own sizes alone: for others, nobody has compared its bits with those of the default.
    """
    near = [(d, r) for r in records if (d := _distance(key.sizes, r.key.sizes)) is not None and not (d and r.modules)]
    if not near:
        return None
    distance, record = min(near, key=lambda pair: (pair[0], pair[1].ratio))
    return Found(record, f"measured for sizes {', '.join(map(str, record.key.sizes))}" if distance else "")


def _distance(a: tuple[int, ...], b: tuple[int, ...]) -> float | None:
    """Return how far sizes are from each other, as logs of ratios; None if one differs by more than the factor NEAR."""
    if len(a) != len(b):
        return None
    logs = [abs(log(max(x, 1) / max(y, 1))) for x, y in zip(a, b, strict=True)]
    return sum(logs) if max(logs, default=0.0) <= log(NEAR) + 1e-9 else None


def _opened(path: Path) -> sqlite3.Connection | None:
    """Return a connection that reads the database, None if it cannot be read.

    Where the folder cannot be written, no other process writes the file either, and SQLite reads it without its lock files.
    """
    if not os.path.isfile(path):  # also if the folder cannot be searched
        return None
    try:
        import sqlite3
    except ImportError:
        return None
    for options in ("mode=ro", "mode=ro&immutable=1"):
        try:
            connection = sqlite3.connect(f"file:{quote(str(path))}?{options}", uri=True, timeout=1.0, check_same_thread=False)
            if connection.execute("PRAGMA user_version").fetchone() != (SCHEMA,):
                return None
            connection.execute("SELECT 1 FROM records LIMIT 1")
            return connection
        except sqlite3.Error:
            continue
    return None


def _parsed(line: object) -> Record | None:
    """Return a row of the database as a record; None if it is none, since others may have written the file."""
    try:
        return parse(line) if isinstance(line, str) else None
    except ModelFileError:
        return None


def _hash(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 64 or not set(value) <= set("0123456789abcdef"):
        raise ValueError("it does not say which kernel it is about")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 200 or not value.isprintable():
        raise ValueError("a short text is expected")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError("a whole number is expected")
    return value


def _whole_numbers(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise ValueError("a list of numbers is expected")
    return tuple(map(_whole, _bounded(values)))


def _bounded(values: Any) -> Any:
    if len(values) > MOST:
        raise ValueError("it has too many parts")
    return values


def _value(value: Any) -> Value:
    if isinstance(value, list):
        return _whole_numbers(value)
    return value if isinstance(value, bool) else _text(value) if isinstance(value, str) else _whole(value)


def _positive(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value < 1e9:
        raise ValueError("a positive number is expected")
    return float(value)
