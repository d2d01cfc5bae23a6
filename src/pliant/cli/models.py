"""`pliant models list | pull NAME | rm NAME`: lists, downloads and removes language models."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ..support.units import in_bytes
from . import Usage, choose, near, progress

ACTIONS = ("list", "pull", "rm")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `pliant models` to the parser."""
    parser.add_argument("action", metavar="list | pull | rm", help="list: show all models; pull: download one; rm: remove one")
    parser.add_argument("name", nargs="?", metavar="NAME", help="a name from `list`, or hf:org/repo[:quant]")
    parser.add_argument("--offline", action="store_true", help="do not use the network")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Runs `pliant models`: lists, downloads or removes models; returns the exit code. Raises Usage for wrong arguments."""
    action = choose(options.action, ACTIONS, "action")
    if (action == "list") != (options.name is None):
        raise Usage(f"`pliant models {action}` takes {'no' if action == 'list' else 'one'} name")
    return {"list": _list, "pull": _pull, "rm": _remove}[action](options)


def _list(options: argparse.Namespace) -> int:
    models = _known()
    if options.json:
        print(json.dumps(models))
        return 0
    width = max(len(model["name"]) for model in models)
    for model in models:
        state = str(model["path"]) if model["here"] else "not fetched"
        print(f"{model['name']:{width}}  {in_bytes(model['bytes']):>8}  {model['licence'] or '':10}  {state}")
    return 0


def _known() -> list[dict[str, Any]]:
    """Returns the models of the catalog, then those in the Hugging Face cache."""
    from ..llm import hub
    from ..llm.catalog import CATALOGUE

    models: list[dict[str, Any]] = [
        {"name": m.name, "title": m.title, "licence": m.licence, "bytes": m.size, "here": m.is_here(), "path": str(m.path())}
        for m in CATALOGUE.values()
    ]
    for path in hub.cached():
        snapshot = next(p for p in path.parents if p.parent.name == "snapshots")
        repo = snapshot.parent.parent.name.removeprefix("models--").replace("--", "/", 1)
        size = sum(
            (snapshot / part).stat().st_size for part in hub.parts(path.relative_to(snapshot).as_posix()) if (snapshot / part).exists()
        )
        name = f"hf:{repo}/{path.relative_to(snapshot).as_posix()}"
        if name not in {model["name"] for model in models}:  # several snapshots may have the same file
            models.append({"name": name, "title": path.stem, "licence": None, "bytes": size, "here": True, "path": str(path)})
    return models


def _pull(options: argparse.Namespace) -> int:
    from ..llm.locate import locate

    def announce(text: str) -> None:
        if sys.stderr.isatty():
            progress("")
            print(text, file=sys.stderr)

    path = locate(options.name, offline=options.offline, progress=progress, announce=announce)
    progress("")
    print(json.dumps({"name": options.name, "path": str(path)}) if options.json else path)
    return 0


def _remove(options: argparse.Namespace) -> int:
    from ..llm import hub
    from ..llm.catalog import CATALOGUE, remove

    if options.name.startswith("hf:"):
        folder = hub.parse(options.name).folder
        raise Usage("models of the Hugging Face cache are shared with other programs, and not removed", f"they are in `{folder}`")
    if options.name not in CATALOGUE:
        raise Usage(f"there is no model `{options.name}`", near(options.name, CATALOGUE) or "`pliant models list` shows them")
    freed = remove(CATALOGUE[options.name])
    if options.json:
        print(json.dumps({"name": options.name, "freed_bytes": freed}))
    else:
        print(f"{options.name}: {in_bytes(freed)} removed" if freed else f"{options.name}: nothing to remove")
    return 0
