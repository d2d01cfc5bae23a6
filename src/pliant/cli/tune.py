"""`pliant tune`: searches the schedules of a model's kernels by measuring; shows, exports, merges and clears what was found.

pliant tune model.onnx --dim n=1..512 --minutes 10     # Ctrl-C keeps everything; later compiles use what was found
pliant tune --show ; pliant tune --export a.tune ; pliant tune --merge a.tune b.tune ; pliant tune --clear
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import Usage, progress
from .model_options import add_dims, read_dims

if TYPE_CHECKING:
    from ..autotuning import TuningResult
    from ..tune.database import Database
    from ..tune.tuner import Tuner

EVERY = 10.0  # seconds between two lines of progress where stderr is no terminal


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `pliant tune` to the parser."""
    parser.add_argument("model", nargs="?", help="an .onnx or .pliant file")
    add_dims(parser)
    parser.add_argument(
        "--sizes", action="append", default=[], metavar="NAME=1,17,128", help="sizes of a dim at which kernels are measured"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the search may take (default: 10)")
    parser.add_argument("--report", metavar="FILE", help="write an HTML page about the search")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="list what was found so far; with a model, for its kernels")
    what.add_argument("--export", metavar="FILE", help="write all records to a file of JSON lines")
    what.add_argument("--merge", nargs="+", metavar="FILE", help="read records that were exported, also on other machines")
    what.add_argument("--clear", action="store_true", help="remove all records and measurements")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Runs `pliant tune`; returns the exit code: 130 after Ctrl-C, 1 if a merged file has a line that is no record, else 0.

    Raises Usage without a model and without one of --show, --export, --merge, --clear, and for a model with one of the last three.
    """
    if options.export or options.merge or options.clear:
        if options.model:
            raise Usage("--export, --merge and --clear are about all records, not about one model")
        return _records(options)
    if options.show:
        return _show(options)
    if not options.model:
        raise Usage("which model?", "write pliant tune model.onnx, or --show, --export, --merge, --clear")
    return _search(options)


def _search(options: argparse.Namespace) -> int:
    """Tunes a model, and prints the table of its kernels, or JSON; writes the HTML page of `--report`.

    Returns the exit code, 130 if Ctrl-C ended the search. Raises Usage if `--minutes` is not positive or `--sizes` is not understood.
    """
    from ..autotuning import autotune

    dims, sizes = read_dims(options.dim), _sizes(options.sizes)
    if not options.minutes > 0:
        raise Usage(f"`--minutes {options.minutes:g}` is no time to search", "write --minutes 10")
    progress(f"reading {options.model}")
    try:
        result = autotune(options.model, dims, sizes, options.minutes, _Shown())
    except KeyboardInterrupt:
        progress("")
        print("stopped; everything that was measured is kept", file=sys.stderr)
        return 130
    progress("")
    if options.report:
        result.report(options.report)
    print(json.dumps(_facts(result)) if options.json else result)
    return 0


def _facts(result: TuningResult) -> dict[str, Any]:
    """Returns the result of a search as a dict for JSON: ratio, candidates, measurements and a dict for each kernel."""
    kernels = [row._asdict() for row in result.table]
    return {"ratio": result.ratio, "candidates": result.candidates, "measurements": result.measurements, "kernels": kernels}


def _sizes(options: Sequence[str]) -> dict[str, list[int]] | None:
    """Parses options like `n=1,17,128` into lists of numbers by dim; None if there are no options, Usage for another form."""
    sizes: dict[str, list[int]] = {}
    for text in options:
        name, _, values = text.partition("=")
        if not name.isidentifier() or not all(v.isdigit() for v in values.split(",")):
            raise Usage(f"`--sizes {text}` is not understood", "write --sizes n=1,17,128")
        sizes[name] = [int(v) for v in values.split(",")]
    return sizes or None


class _Shown:
    """Shows the progress of a search on stderr: one line that changes on a terminal, else a line at most every ten seconds."""

    def __init__(self) -> None:
        self.last = 0.0

    def __call__(self, tuner: Tuner) -> None:
        """Shows the state of the search: the present kernel and its best ratio, kernels done, candidates a minute, and the time left."""
        terminal = sys.stderr.isatty()
        if not terminal and time.monotonic() - self.last < EVERY:
            return
        self.last = time.monotonic()
        open_ = [s for s in tuner.states if not s.finished and not s.problem]
        minutes = max(time.monotonic() - tuner.started, 1e-3) / 60
        now = tuner.current
        best = "" if now is None else f"{now.task.name}: best {100 * now.best()[1]:.0f} % of the default, "
        text = f"{best}{len(tuner.states) - len(open_)} of {len(tuner.states)} kernels done"
        text += f", {tuner.candidates / minutes:.0f} candidates a minute, {max(tuner.left(), 0):.0f} s left"
        if terminal:
            progress(text[: os.get_terminal_size(sys.stderr.fileno()).columns - 1])
        else:
            print(text, file=sys.stderr, flush=True)


def _show(options: argparse.Namespace) -> int:
    """Prints all records, or, with a model, compiles it and prints the explanation of what its kernels take; returns 0."""
    if options.model:
        from ..api import compile
        from ..explanation import explain

        text = explain(compile(options.model, dims=read_dims(options.dim)))
        print(json.dumps({"explained": text}) if options.json else text)
        return 0
    with _database() as database:
        records = database.records()
    if options.json:
        print(json.dumps([json.loads(r.line()) for r in records]))
        return 0
    from ..schedule.decisions import shown

    for r in records:
        taken = ", ".join(f"{name} = {shown(v)}" for name, v in r.decisions.items())
        print(f"{r.kernel} of sizes {', '.join(map(str, r.key.sizes)) or '-'}: {r.described()}: {taken}")
    print(f"{len(records)} record{'s' * (len(records) != 1)}")
    return 0


def _records(options: argparse.Namespace) -> int:
    """Exports, merges or clears the records, and prints how many; returns 1 if a line of a merged file is no record, else 0.

    Merged records are kept unless the database has one that is as fast, or modules made the schedule. Raises Usage without a file to merge.
    """
    from ..support.output_file import write_text
    from ..tune.database import export_lines, read_lines

    refused: list[str] = []
    with _database() as database:
        if options.clear:
            facts = {"removed": database.clear()}
        elif options.export:
            records = database.records()
            write_text(options.export, export_lines(records))
            facts = {"exported": len(records)}
        else:
            facts = {"merged": 0, "kept": 0}
            for path in options.merge:
                if not os.path.isfile(path):
                    raise Usage(f"there is no file `{path}`")
                with open(path, "rb") as source:
                    records, bad = read_lines(source)
                refused += [f"{path}, {b}" for b in bad]
                own = [r for r in records if not r.modules]
                if len(own) < len(records):
                    print(f"not taken: {len(records) - len(own)} of modules, which each machine measures itself", file=sys.stderr)
                facts["merged"] += len(own)
                facts["kept"] += sum(database.add_record(r) for r in own)
    for reason in refused:
        print(f"not read: {reason}", file=sys.stderr)
    print(json.dumps(facts) if options.json else ", ".join(f"{n} record{'s' * (n != 1)} {what}" for what, n in facts.items()))
    return 1 if refused else 0


def _database() -> Database:
    """Opens the user's database of records; raises Usage if there is no folder for it."""
    from ..tune.database import Database
    from ..tuned_code import records_path

    path = records_path()
    if path is None:
        raise Usage("there is no folder for records", "set PLIANT_CACHE to a folder")
    return Database(path)
