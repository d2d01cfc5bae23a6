"""`pliant cache info | clear`: the code cache, where compiled programs are kept for the next run."""

from __future__ import annotations

import argparse
import json

from ..runtime import cache
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
    found = cache.default()
    files, size = len(found.files()), found.size()
    if action == "clear":
        found.clear()
        left = len(found.files())
    facts = {"folder": None if found.folder is None else str(found.folder), "entries": files, "bytes": size, "limit_bytes": found.limit}
    if options.json:
        print(json.dumps(facts if action == "info" else {**facts, "removed": files - left}))
    elif found.folder is None:
        print("there is no cache: no home folder, and PLIANT_CACHE is not set")
    elif action == "info":
        print(f"{found.folder}: {entries(files)}, {in_bytes(size)} of at most {in_bytes(found.limit)}")
    else:
        kept = f"; {entries(left)} could not be removed" if left else ""
        print(f"{found.folder}: {entries(files - left)} removed{kept}")
    return 1 if action == "clear" and left else 0


def entries(count: int) -> str:
    """`1 entry`, `7 entries`."""
    return f"{count} entr{'y' if count == 1 else 'ies'}"
