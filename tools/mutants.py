"""Measures the random tests: makes mechanical mutants of the compiler, and counts those that the random tier finds.

    python tools/mutants.py                          # 40 mutants for each of the seeds 1, 2, 3
    python tools/mutants.py --seed 1 --count 12 --json found.json
    python tools/mutants.py --seed 1 --list          # what would be tried, and how many tests run it
    python tools/mutants.py --file schedule/invariants.py # of one file
    python tools/mutants.py --unreached              # the mutants that no test runs: what generators lack

A mutant is the compiler with one small change that a person could make by mistake (`mutate.py`):

    conjunct    one part of `a and b` is left out
    bound       `<` becomes `<=`, `>` becomes `>=`
    constant    a whole number becomes one more or one less
    check       `if …: raise …` never raises
    guard       `if …: return …` (or `continue`) is never taken

What no test of results can tell from the compiler, by what it is and not by where it stands, is not changed: the domain and the default of
a decision (`decide(…)`) and the numbers that rules have by name, which choose among legal programs that `test_random_decisions.py` tests;
texts and what an error says; checks that the compiler has against its own mistakes (`raise InternalError`).

First the random tier runs once on the tree as it is, and `reach.py` records which test runs which lines (with the package `coverage`;
kept until a file changes). Then, for each mutant, a copy of the tree is changed, and imported; and the random tests run against it until
one fails or the time is over (`mutant_lab.py`): those that are known to run the changed line, cheap ones of many kinds first; then the same
functions with seeds that no other run has. Of a check and a guard that is the line that is no longer run. Where no test is known, the tests
that are most relevant for the file run with new seeds. A failure counts only if the same test passes on the tree without the change.
Mutants are chosen by the seed, the same number from each group of files (GROUPS) as far as there are that many.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from mutant_lab import Lab, Outcome, tier
from mutate import GROUPS, Mutant, all_mutants, choose
from reach import Reach, recorded


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The outcomes as lines of text."""
    for o in outcomes:
        m = o.mutant
        change = f"{one_line(m.before)}  ->  {one_line(m.after)}"
        found = f"{o.test.split('::')[-1][:60]} {one_line(o.why)}" if o.test else ""
        yield f"{o.result:9} {o.seconds:6.0f} s {o.reached:4}  {m.kind:9} {m.place:45} {change}  {found}"


def one_line(text: str) -> str:
    """The beginning of a text on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= 70 else f"{flat[:67]}…"


def summary(seed: int, outcomes: Sequence[Outcome]) -> str:
    """The count of a seed."""
    by = {r: sum(o.result == r for o in outcomes) for r in ("killed", "crashed", "survived")}
    groups = {o.mutant.group for o in outcomes}
    parts = [
        f"{g} {sum(o.result != 'survived' for o in outcomes if o.mutant.group == g)}/{sum(o.mutant.group == g for o in outcomes)}"
        for g in GROUPS
        if g in groups
    ]
    found = by["killed"] + by["crashed"]
    counts = f"{found} of {len(outcomes)} found ({by['crashed']} of them crash at once), {by['survived']} survived"
    return f"seed {seed}: {counts}; {', '.join(parts)}"


def unreached(found: dict[str, list[Mutant]], reach: Reach) -> Iterator[str]:
    """The mutants that no test runs, file by file: the files with the most of them first."""
    missing: dict[str, list[Mutant]] = {}
    total: dict[str, int] = {}
    for m in (m for ms in found.values() for m in ms):
        total[m.path] = total.get(m.path, 0) + 1
        if not reach.of(m):
            missing.setdefault(m.path, []).append(m)
    for path, ms in sorted(missing.items(), key=lambda item: -len(item[1])):
        yield f"{path}: {len(ms)} of {total[path]}"
        for line in sorted({m.line for m in ms}):
            here = [m for m in ms if m.line == line]
            yield f"    {line:4} {', '.join(sorted({m.kind for m in here})):28} {one_line(here[0].before)}"
    yield f"{sum(map(len, missing.values()))} of {sum(total.values())} mutants are run by no test"


def main() -> int:
    """Measure, print a table, and answer 1 where fewer are found than asked for."""
    parser = argparse.ArgumentParser(description="mechanical mutants of the compiler against the random tests")
    parser.add_argument("--seed", type=int, action="append", help="which mutants are chosen; may be given several times (default 1, 2, 3)")
    parser.add_argument("--count", type=int, default=40, help="mutants for each seed")
    parser.add_argument("--first", type=int, default=0, help="begin with this one of a seed's mutants")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for a mutant")
    parser.add_argument("--cpu", action="store_true", help="count seconds of a core, not of the clock: for a machine that others use too")
    parser.add_argument("--file", default="", help="only files whose path has this in it")
    parser.add_argument("--list", action="store_true", help="show the mutants and how many tests run them, try none")
    parser.add_argument("--unreached", action="store_true", help="show the mutants that no random test runs, try none")
    folder = Path(tempfile.gettempdir()) / "pliant-reach"
    parser.add_argument("--maps", type=Path, default=folder, help="the folder that keeps which tests run which lines")
    parser.add_argument("--stale", action="store_true", help="take maps of an older tree: lines may be off, failures are as true")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    parser.add_argument("--floor", type=int, default=0, help="fail where fewer of a seed's mutants are found")
    options = parser.parse_args()
    found = all_mutants(options.file)
    reach = recorded(tier(), options.maps, options.stale)
    if options.unreached:
        print(*unreached(found, reach), sep="\n")
        return 0
    worst = options.count
    kept: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as work:
        lab = None if options.list else Lab(Path(work), reach, options.limit, options.cpu)
        for seed in options.seed or [1, 2, 3]:
            outcomes: list[Outcome] = []
            for number, mutant in enumerate(choose(found, seed, options.count)[options.first :], options.first):
                outcome = Outcome(mutant, "", reached=len(reach.of(mutant))) if lab is None else lab.test(mutant, seed * 1000 + number)
                outcomes.append(outcome)
                print(f"{number:3}", *table([outcome]), flush=True)
                kept.append({"seed": seed, "number": number, **asdict(outcome)})
                if options.json is not None:
                    options.json.write_text(json.dumps(kept, indent=1), encoding="utf-8")
            if lab is not None:
                print(summary(seed, outcomes), flush=True)
                print(*table([o for o in outcomes if o.result == "survived"]), sep="\n", flush=True)
                worst = min(worst, sum(o.result != "survived" for o in outcomes))
    return 1 if worst < options.floor else 0


if __name__ == "__main__":
    sys.exit(main())
