"""The database of a user: records that compilations read, and every measurement, so that none is made twice.

    database = Database(path)
    database.add_trial(task, {"0.tile": (4, 2)}, Outcome("ok", 0.93))     # on disk when the call returns
    database.add_record(record)

SQLite in WAL mode: several processes read and write it at once, and a process that is killed loses what it was just measuring. The tables:

    records(form, sizes, line)                    what `schedule/records.py` reads: one record for each kernel and its sizes
    trials(task, vector, status, ratio, message)  what was measured, also candidates that crashed or were wrong: never drawn again
    tasks(task, seconds, finished)                the default's time, and if nothing is left to try
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from ..schedule.records import LONGEST, MOST, SCHEMA, KernelKey, Record, parse
from ..support.errors import Error, ModelFileError

if TYPE_CHECKING:
    import sqlite3

    from ..schedule.domains import Value

_TABLES = """
CREATE TABLE IF NOT EXISTS records (form TEXT, sizes TEXT, line TEXT NOT NULL, PRIMARY KEY (form, sizes));
CREATE TABLE IF NOT EXISTS trials (
    task TEXT, vector TEXT, status TEXT NOT NULL, ratio REAL, message TEXT NOT NULL, PRIMARY KEY (task, vector));
CREATE TABLE IF NOT EXISTS tasks (task TEXT PRIMARY KEY, seconds REAL NOT NULL, finished INTEGER NOT NULL);
"""
WAIT = 10.0  # seconds that a process waits for another one that writes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a candidate: "ok" with the ratio of its time to the default's, else why it has none."""

    status: str  # that of a measurement (`runner.py`), or "illegal": the rules refused it
    ratio: float | None = None
    message: str = ""


class Database:
    """The records and measurements of a user; a context manager. Raises an Error if the file cannot be written or is no such database."""

    def __init__(self, path: Path) -> None:
        try:
            import sqlite3
        except ImportError:
            raise Error("records of tuning need Python's module sqlite3, which this Python lacks") from None
        self.path = path
        self._errors = sqlite3.Error
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._connection: sqlite3.Connection = sqlite3.connect(path, timeout=WAIT, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise self._refused(error) from None
        with self._told():
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, SCHEMA):
                raise Error(f"the records in {path} are those of another version of Pliant", facts=[f"version {version}, not {SCHEMA}"])
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            if version == 0:
                self._connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Context manager: raises an Error for a problem of SQLite (a full disk, a file that is no database)."""
        try:
            yield
        except self._errors as error:
            raise self._refused(error) from None

    def _refused(self, error: Exception) -> Error:
        return Error(
            f"records of tuning cannot be kept in {self.path}", facts=[str(error)], help="set PLIANT_CACHE to a folder that can be written"
        )

    # Records.

    def add_record(self, record: Record) -> bool:
        """Keeps a record, unless the one of the same kernel and sizes is as fast; returns True if it was kept."""
        with self._told():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                known = next((r for r in self.records(record.key.form) if r.key == record.key), None)
                better = known is None or record.ratio < known.ratio
                if better:
                    row = (record.key.form, json.dumps(record.key.sizes), record.line())
                    self._connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", row)
            finally:
                self._connection.execute("COMMIT")
        return better

    def records(self, form: str | None = None) -> list[Record]:
        """Returns all records, or those of one form; rows that are none are left out."""
        rows = "SELECT line FROM records" + ("" if form is None else " WHERE form = ?") + " ORDER BY form, sizes"
        found = []
        with self._told():
            for (line,) in self._connection.execute(rows, () if form is None else (form,)).fetchall():
                with contextlib.suppress(ModelFileError):
                    found.append(parse(line))
        return found

    def remove_record(self, key: KernelKey) -> None:
        """Withdraws the record of a kernel and its sizes."""
        with self._told():
            self._connection.execute("DELETE FROM records WHERE form = ? AND sizes = ?", (key.form, json.dumps(key.sizes)))

    def clear(self) -> int:
        """Removes all records and measurements; returns how many records there were."""
        with self._told():
            (count,) = self._connection.execute("SELECT count(*) FROM records").fetchone()
            self._connection.executescript("BEGIN IMMEDIATE; DELETE FROM records; DELETE FROM trials; DELETE FROM tasks; COMMIT;")
        return int(count)

    # Measurements.

    def add_trial(self, task: str, vector: Mapping[str, Value], outcome: Outcome) -> None:
        """Keeps what came of a candidate."""
        row = (task, vector_text(vector), outcome.status, outcome.ratio, outcome.message[:500])
        with self._told():
            self._connection.execute("INSERT OR REPLACE INTO trials VALUES (?, ?, ?, ?, ?)", row)

    def trials(self, task: str) -> dict[str, Outcome]:
        """Returns what came of the candidates of a task, by their vectors as text."""
        with self._told():
            rows = self._connection.execute("SELECT vector, status, ratio, message FROM trials WHERE task = ?", (task,)).fetchall()
        return {vector: Outcome(status, ratio, message) for vector, status, ratio, message in rows}

    def set_task(self, task: str, seconds: float, finished: bool) -> None:
        """Keeps the default's time of a task, and if nothing is left to try."""
        with self._told():
            self._connection.execute("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?)", (task, seconds, int(finished)))

    def task(self, task: str) -> tuple[float, bool] | None:
        """Returns the default's time of a task, and if nothing is left to try; None for a task that was never begun."""
        with self._told():
            row = self._connection.execute("SELECT seconds, finished FROM tasks WHERE task = ?", (task,)).fetchone()
        return None if row is None else (float(row[0]), bool(row[1]))


def vector_text(vector: Mapping[str, Value]) -> str:
    """Returns a vector of decisions as text, the same for equal ones."""
    return json.dumps(dict(sorted(vector.items())))


def vector_of(text: str) -> dict[str, Value]:
    """Returns the vector of decisions that `vector_text` wrote."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in json.loads(text).items()}


def export_lines(records: Iterable[Record]) -> str:
    """Returns records as lines of JSON, the form of `.tune` files."""
    return "".join(f"{r.line()}\n" for r in records)


def read_lines(file: IO[bytes]) -> tuple[list[Record], list[str]]:
    """Reads the records of a `.tune` file, and for each line that is none, why. Reads a line at a time, and at most MOST bad ones."""
    found: list[Record] = []
    refused: list[str] = []
    number = 0
    while (line := file.readline(LONGEST + 1)) and len(refused) < MOST:
        number += 1
        try:
            if len(line) > LONGEST:
                raise ModelFileError("this is no record of tuning", facts=["the line is too long"])
            found.append(parse(line.decode()))
        except (ModelFileError, UnicodeDecodeError) as error:
            facts = getattr(error, "facts", None) or [str(error)]
            refused.append(f"line {number}: {facts[0]}")
            if len(line) > LONGEST:
                break
    return found, refused
