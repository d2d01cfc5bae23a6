"""JSON files beside a model's weights (`config.json` and others): read with limits, and asked for values with their types.

    config = Config.read(folder / "config.json")
    config.integer("hidden_size", low=1, high=1 << 20)      # raises a ModelFileError if missing, of another type or out of range
    config.refuse_unread(neutral={"pretraining_tp": 1}, silent={"use_cache"})

A config records the keys that were asked for. Ignoring another one could compute a different model without a sign, so `refuse_unread` lets
only those pass that are known to change nothing.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ...support.errors import ModelFileError, UnsupportedError
from ..gguf.parse import shown

MAX_BYTES = 16 << 20  # of a file: several times the largest known tokenizer_config.json
SMALLEST, LARGEST = 1e-15, 1e15  # of the numbers above 0: far from real ones, and products of two are finite in f32
Json = dict[str, Any]


class Config:
    """The values of a JSON object by key, with the name of its file for messages; a key whose value is null counts as missing."""

    def __init__(self, values: Json, name: str) -> None:
        self.values = {key: value for key, value in values.items() if value is not None}
        self.empty = {key for key, value in values.items() if value is None}
        self.name = name
        self.read_keys: set[str] = set()  # the keys that were asked for

    @staticmethod
    def read(path: Path) -> Config:
        """Returns the config of a file; raises ModelFileError if it cannot be read or is no JSON object."""
        return Config(read_object(path), path.name)

    def get(self, key: str) -> Any:
        """Returns the value under the key, None if there is none."""
        self.read_keys.add(key)
        return self.values.get(key)

    def integer(self, key: str, *default: int, low: int = 0, high: int = (1 << 31) - 1) -> int:
        """Returns the integer under the key, or the default; raises ModelFileError if it is missing, no integer, or not in low..high."""
        value = self._found(key, *default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(key, f"an integer from {low} to {high}")
        return value

    def positive(self, key: str, *default: float) -> float:
        """Returns the number above 0 under the key, or the default; raises ModelFileError if it is missing, or not in SMALLEST..LARGEST."""
        value = self._found(key, *default)
        if not _is_positive(value):
            raise self.wrong(key, f"a number from {SMALLEST:g} to {LARGEST:g}")
        return float(value)

    def flag(self, key: str, *default: bool) -> bool:
        """Returns the bool under the key, or the default; raises ModelFileError if it is missing or no bool."""
        value = self._found(key, *default)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def text(self, key: str, *default: str) -> str:
        """Returns the string under the key, or the default; raises ModelFileError if it is missing or no string."""
        value = self._found(key, *default)
        if not isinstance(value, str):
            raise self.wrong(key, "a string")
        return value

    def numbers(self, key: str, count: int) -> list[float]:
        """Returns the list of `count` numbers above 0 under the key; raises ModelFileError for anything else."""
        value = self._found(key)
        if not isinstance(value, list) or len(value) != count or not all(_is_positive(v) for v in value):
            raise self.wrong(key, f"a list of {count} numbers from {SMALLEST:g} to {LARGEST:g}")
        return [float(v) for v in value]

    def inner(self, key: str) -> Config:
        """Returns the object under the key, an empty one if there is none; raises ModelFileError if it is no object."""
        value = self.get(key)
        if value is None or isinstance(value, dict):
            return Config(value or {}, f"{self.name}, `{key}`")
        raise self.wrong(key, "an object")

    def refuse_unread(self, neutral: Mapping[str, Any], silent: Collection[str] = ()) -> None:
        """Raises UnsupportedError for a key that was not asked for, unless it is `silent` or has its `neutral` value."""
        for key, value in self.values.items():
            if key in self.read_keys or key in silent or (key in neutral and _same(value, neutral[key])):
                continue
            supported = f"supported: {json.dumps(neutral[key])}" if key in neutral else "the key is not known"
            raise UnsupportedError(
                f"{self.name}: `{shown(key)}` is {shown(repr(value))}, and the result could be that of another model",
                facts=[supported],
                help="a GGUF file of the model may be supported; if the key changes nothing, delete it",
            )

    def wrong(self, key: str, wanted: str) -> ModelFileError:
        """Returns the error for a value that is missing or not what is wanted."""
        value = self.values.get(key)
        found = "is missing" if value is None else f"is {shown(repr(value))}"
        return ModelFileError(f"{self.name}: `{key}` {found}, where {wanted} is expected")

    def _found(self, key: str, *default: Any) -> Any:
        value = self.get(key)
        return default[0] if value is None and default else value


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and SMALLEST <= value <= LARGEST


def _same(value: Any, usual: Any) -> bool:
    """True if a value is the usual one: equal, and a bool only if that is one."""
    return isinstance(value, bool) == isinstance(usual, bool) and bool(value == usual)


def read_object(path: Path) -> Json:
    """Returns the JSON object of a file; raises ModelFileError if it cannot be read, is too large, or has something else."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise ModelFileError(f"`{path}` is not a JSON object")
    return value


def read_json(path: Path) -> Any:
    """Returns the value of a JSON file; raises ModelFileError if it cannot be read, is too large, no JSON, or has a key twice."""
    try:
        return json.loads(read_text(path, MAX_BYTES), object_pairs_hook=_once)
    except (ValueError, RecursionError) as problem:
        if isinstance(problem, ModelFileError):
            raise
        raise ModelFileError(f"`{path}` is not JSON") from None


def read_text(path: Path, limit: int) -> str:
    """Returns the text of a regular file of at most `limit` bytes; raises ModelFileError for any other."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its writer
            raise ModelFileError(f"`{path}` is not a regular file")
        if status.st_size > limit:
            raise ModelFileError(f"`{path}` is larger than {limit >> 10} KiB")
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise ModelFileError(f"`{path}` cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise ModelFileError(f"`{path}` is not UTF-8") from None


def _once(pairs: list[tuple[str, Any]]) -> Json:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key is there twice")
    return table
