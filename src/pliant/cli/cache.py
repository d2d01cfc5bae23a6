"""`pliant cache info | clear`: shows or clears the caches: compiled code, and stored programs of language models."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ..runtime import code_cache
from ..runtime.program_store import ProgramStore
from ..support.units import in_bytes
from . import choose

ACTIONS = ("info", "clear")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `pliant cache` to the parser."""
    parser.add_argument(
        "action", metavar="info | clear", help="info: show the folder, number of entries and size; clear: remove all entries"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Runs `pliant cache`: shows or clears the caches; returns the exit code, 1 if an entry could not be removed."""
    action = choose(options.action, ACTIONS, "action")
    base = code_cache.folder()
    if base is None:
        print(json.dumps({"folder": None}) if options.json else "there is no cache: no home folder, and PLIANT_CACHE is not set")
        return 0
    parts: list[code_cache.Cache | ProgramStore] = [code_cache.default(), ProgramStore(base / "ready")]
    described = [_facts(part) for part in parts]
    if action == "clear":
        for facts, part in zip(described, parts, strict=True):
            part.clear()
            facts["removed"] = facts["entries"] - len(part.files())
    for facts in described:
        if not options.json:
            print(_line(facts))
    if options.json:
        print(json.dumps({**described[0], "ready_models": described[1]}))
    return 1 if any(facts["removed"] < facts["entries"] for facts in described if "removed" in facts) else 0


def _facts(part: code_cache.Cache | ProgramStore) -> dict[str, Any]:
    return {"folder": str(part.folder), "entries": len(part.files()), "bytes": part.size(), "limit_bytes": part.limit}


def _line(facts: dict[str, Any]) -> str:
    """Returns a line of text about the contents of a cache, or about what was removed from it."""
    where, count = facts["folder"], facts["entries"]
    if "removed" not in facts:
        return f"{where}: {entries(count)}, {in_bytes(facts['bytes'])} of at most {in_bytes(facts['limit_bytes'])}"
    left = count - facts["removed"]
    return f"{where}: {entries(facts['removed'])} removed" + (f"; {entries(left)} could not be removed" if left else "")


def entries(count: int) -> str:
    """Returns the number with its noun: `1 entry`, `7 entries`."""
    return f"{count} entr{'y' if count == 1 else 'ies'}"
