"""`pliant cache info | clear`: what is kept for the next run: compiled code, and language models as their programs read them."""

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
    """The command line."""
    parser.add_argument("action", metavar="info | clear", help="show the place, the number of entries and the size; or remove them all")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")


def run(options: argparse.Namespace) -> int:
    """Shows or clears the cache; what is cleared is shown as it was."""
    action = choose(options.action, ACTIONS, "action")
    base = code_cache.folder()
    if base is None:
        print(json.dumps({"folder": None}) if options.json else "there is no cache: no home folder, and PLIANT_CACHE is not set")
        return 0
    parts: list[code_cache.Cache | ProgramStore] = [code_cache.default(), ProgramStore(base / "ready")]
    found = [_facts(part) for part in parts]
    if action == "clear":
        for facts, part in zip(found, parts, strict=True):
            part.clear()
            facts["removed"] = facts["entries"] - len(part.files())
    for facts in found:
        if not options.json:
            print(_line(facts))
    if options.json:
        print(json.dumps({**found[0], "ready_models": found[1]}))
    return 1 if any(facts["removed"] < facts["entries"] for facts in found if "removed" in facts) else 0


def _facts(part: code_cache.Cache | ProgramStore) -> dict[str, Any]:
    return {"folder": str(part.folder), "entries": len(part.files()), "bytes": part.size(), "limit_bytes": part.limit}


def _line(facts: dict[str, Any]) -> str:
    """What is there, or what was removed, for people."""
    where, count = facts["folder"], facts["entries"]
    if "removed" not in facts:
        return f"{where}: {entries(count)}, {in_bytes(facts['bytes'])} of at most {in_bytes(facts['limit_bytes'])}"
    left = count - facts["removed"]
    return f"{where}: {entries(facts['removed'])} removed" + (f"; {entries(left)} could not be removed" if left else "")


def entries(count: int) -> str:
    """`1 entry`, `7 entries`."""
    return f"{count} entr{'y' if count == 1 else 'ies'}"
