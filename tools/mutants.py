"""Measures the random tests: makes mechanical mutants of the compiler, and counts those that the random tier finds.

    python tools/mutants.py                          # 40 mutants for each of the seeds 1, 2, 3
    python tools/mutants.py --seed 1 --count 12 --json found.json
    python tools/mutants.py --seed 1 --list          # what would be tried
    python tools/mutants.py --file schedule/invariants.py # of one file

A mutant is the compiler with one small change that a person could make by mistake:

    conjunct    one part of `a and b` is left out
    bound       `<` becomes `<=`, `>` becomes `>=`
    constant    a whole number becomes one more or one less
    check       `if …: raise …` never raises
    guard       `if …: return …` (or `continue`) is never taken

What only chooses among legal programs is not changed: the domain and the default of a decision (`decide(…)`), and the numbers that rules
have by name. Another choice gives another good program, which `test_random_decisions.py` tests, so that no test of results can tell
such a mutant from the compiler.

For each mutant a copy of the tree is changed, and imported; then the random tests run against it until one fails or the time is over: those
that are most relevant for the changed file first (ORDER), with seeds that no other run has, then all others, then again with further
seeds. A failure counts only if the same test passes on the tree without the change. Mutants are chosen by the seed, the same number from
each group of files (GROUPS) as far as there are that many.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path("src/pliant")
GROUPS: dict[str, tuple[str, ...]] = {
    "primitives": ("schedule/primitives/*.py",),
    "rules": ("schedule/library/*.py",),
    "legality": (
        "schedule/invariants.py",
        "schedule/dependence.py",
        "loop/analysis/nests.py",
        "schedule/tile.py",
        "loop/verify*.py",
    ),
    "passes": ("graph/passes/*.py", "loop/passes/*.py", "lower/*.py", "lower/templates/*.py"),
    "importers": ("frontends/onnx/*.py", "frontends/onnx/rules/*.py"),
}
PROPERTY = "tests/property"
SCHEDULES = "test_schedules.py::test_random_schedules_keep_the_meaning"
SKETCHES = "test_schedules.py::test_what_is_legal_is_accepted"
RULES = "test_schedules.py::test_default_rules_keep_the_meaning"
KERNELS = "test_schedules.py::test_default_rules_on_the_kernels"
LOOPS = "test_schedules.py::test_default_rules_keep_the_meaning_of_loop_programs"
# The random tier: every module of random programs, schedules, graphs, models and expressions. A list, so that a test that is no
# random one does not get into the measure unseen.
TIER = (
    SCHEDULES,
    SKETCHES,
    "test_wrong_claims.py",
    RULES,
    KERNELS,
    LOOPS,
    "test_loop_programs.py",
    "test_checked_programs.py",
    "test_loop_regions.py",
    "test_compiled_graphs.py",
    "test_graphs.py",
    "test_random_passes.py",
    "test_random_operators.py",
    "test_random_places.py",
    "test_random_rows.py",
    "test_convolutions.py",
    "test_random_decisions.py",
    "test_random_lowering.py",
    "test_random_onnx.py",
    "test_artifacts.py",
    "test_sym_random.py",
    "test_sym_maps.py",
    "test_sym_tiles.py",
)
# What finds mistakes in a file soonest: the first prefix that fits.
ORDER: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("schedule/primitives/", (SKETCHES, SCHEDULES, RULES, KERNELS)),
    ("schedule/library/convolution", ("test_convolutions.py", "test_compiled_graphs.py", RULES, KERNELS)),
    ("schedule/library/windows", ("test_convolutions.py", "test_compiled_graphs.py", RULES)),
    ("schedule/library/", (KERNELS, RULES, "test_compiled_graphs.py", "test_convolutions.py", "test_random_rows.py", LOOPS)),
    ("schedule/", (SKETCHES, SCHEDULES, RULES, "test_wrong_claims.py")),
    ("loop/verify", ("test_wrong_claims.py", SCHEDULES, "test_loop_programs.py", "test_checked_programs.py")),
    ("loop/passes/", ("test_loop_programs.py", SCHEDULES, RULES, "test_checked_programs.py", "test_loop_regions.py")),
    ("graph/passes/", ("test_random_passes.py", "test_graphs.py", "test_compiled_graphs.py", "test_random_operators.py")),
    (
        "lower/",
        ("test_compiled_graphs.py", "test_random_operators.py", "test_random_places.py", "test_convolutions.py", "test_random_rows.py"),
    ),
    ("frontends/onnx/", ("test_random_onnx.py",)),
)
# The moves of random schedules that use a file of primitives: the player then makes them more often.
FOCUS: dict[str, str] = {
    "block_layout": "iterators reindex",
    "blockize": "blockize split",
    "blockize_group": "blockize",
    "compact": "compact",
    "cache": "write_cache read_cache scope lanes_then_cache",
    "inline": "inline",
    "join": "join",
    "layout": "layout",
    "loops": "fuse reorder vectorize parallel unroll",
    "move": "move",
    "padding": "pad",
    "partition": "partition",
    "parts": "parts",
    "widen": "widen parts",
    "reduction": "decompose begin contract",
    "rfactor": "factor",
    "rolling": "roll",
    "split": "split tile_and_kind",
    "tensorize": "tensorize auto_tensorize",
    "wide_copies": "read_cache reindex",
}
STEP = 1_000_000  # between the seeds of two rounds


@dataclass(frozen=True)
class Mutant:
    """A change: where it is, what it is, and the text that replaces a part of the file."""

    group: str
    path: str  # below src/pliant
    line: int
    kind: str
    before: str
    after: str
    start: int  # of the replaced text, in characters
    end: int

    @property
    def place(self) -> str:
        """Its file and line."""
        return f"{self.path}:{self.line}"

    def apply(self, text: str) -> str:
        """The file with the change."""
        return text[: self.start] + self.after + text[self.end :]


@dataclass
class Outcome:
    """What the random tier says of a mutant."""

    mutant: Mutant
    result: str = "survived"  # killed | crashed (the compiler cannot be imported) | survived
    test: str = ""
    seconds: float = 0.0
    unsound: list[str] = field(default_factory=list)  # tests that fail without the change too


# Making mutants.


class Finder(ast.NodeVisitor):
    """Finds the places of a file that can be changed."""

    def __init__(self, group: str, path: str, text: str) -> None:
        self.group, self.path, self.text = group, path, text
        self.lines = [0]
        for line in text.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.rows = text.splitlines(keepends=True)
        self.found: list[Mutant] = []

    def offset(self, line: int, column: int) -> int:
        """The character at a line and a column of bytes."""
        return self.lines[line - 1] + len(self.rows[line - 1].encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def add(self, kind: str, node: ast.expr, after: str) -> None:
        start, end = self.span(node)
        self.found.append(Mutant(self.group, self.path, node.lineno, kind, self.text[start:end], after, start, end))

    def source(self, node: ast.expr) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def visit_If(self, node: ast.If) -> None:
        """Checks and guards."""
        if "TYPE_CHECKING" in ast.dump(node.test):
            return
        last = node.body[-1]
        if len(node.body) <= 2 and isinstance(last, ast.Raise):
            self.add("check", node.test, "False")
        elif len(node.body) == 1 and isinstance(last, (ast.Return, ast.Continue)) and not node.orelse:
            self.add("guard", node.test, "False")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Decisions are not changed: whichever value of its domain one has, the results are the same."""
        if not _decides(node.func):
            self.generic_visit(node)

    def visit_Module(self, node: ast.Module) -> None:
        """Everything but the numbers that rules have by name, which are defaults, or limits on what is worth its cost."""
        for s in node.body:
            if self.group != "rules" or not isinstance(s, (ast.Assign, ast.AnnAssign)):
                self.visit(s)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Conjuncts."""
        if isinstance(node.op, ast.And):
            for n in range(len(node.values)):
                rest = [f"({self.source(v)})" for k, v in enumerate(node.values) if k != n]
                self.add("conjunct", node, f"({' and '.join(rest)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Bounds."""
        words = {ast.Lt: ("<", "<="), ast.Gt: (">", ">=")}
        if len(node.ops) == 1 and type(node.ops[0]) in words:
            _, new = words[type(node.ops[0])]
            self.add("bound", node, f"({self.source(node.left)}) {new} ({self.source(node.comparators[0])})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Whole numbers."""
        if type(node.value) is int:
            for step in (1, -1):
                self.add("constant", node, f"({node.value + step})" if node.value + step < 0 else str(node.value + step))

    def visit_Raise(self, node: ast.Raise) -> None:
        """What an error says is not changed."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Nor other texts."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Annotations are not changed."""
        if node.value is not None:
            self.visit(node.value)

    def visit_arguments(self, node: ast.arguments) -> None:
        """Defaults are, annotations are not."""
        for value in (*node.defaults, *(d for d in node.kw_defaults if d is not None)):
            self.visit(value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """The body of a function, and its defaults."""
        self.visit(node.args)
        for s in node.body:
            self.visit(s)


def _decides(f: ast.expr) -> bool:
    """Whether what is called makes a decision: `decide`, `self.decide`, `decide.of(block)`."""
    if isinstance(f, ast.Call):
        return isinstance(f.func, ast.Attribute) and f.func.attr == "of" and _decides(f.func.value)
    return (isinstance(f, ast.Name) and f.id == "decide") or (isinstance(f, ast.Attribute) and f.attr == "decide")


def mutants_of(group: str, path: Path) -> list[Mutant]:
    """Every mutant of a file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    finder = Finder(group, str(path.relative_to(ROOT / SOURCE)), text)
    finder.visit(tree)
    return finder.found


def changes(mutant: Mutant) -> bool:
    """Whether a changed file is another program that can be read."""
    text = (ROOT / SOURCE / mutant.path).read_text(encoding="utf-8")
    try:
        return ast.dump(ast.parse(mutant.apply(text))) != ast.dump(ast.parse(text))
    except SyntaxError:
        return False


def all_mutants(only: str = "") -> dict[str, list[Mutant]]:
    """The mutants of each group, in order of files and lines."""
    found: dict[str, list[Mutant]] = {}
    for group, patterns in GROUPS.items():
        paths = sorted({p for pattern in patterns for p in (ROOT / SOURCE).glob(pattern) if p.name != "__init__.py" or "library" in str(p)})
        found[group] = [m for p in paths if only in str(p) for m in mutants_of(group, p)]
    return {group: ms for group, ms in found.items() if ms}


def choose(found: dict[str, list[Mutant]], seed: int, count: int) -> list[Mutant]:
    """So many mutants, drawn by the seed: as many of each group as of the others, and of each kind as it occurs."""
    rng = random.Random(f"mutants {seed}")
    queues = {group: rng.sample(ms, len(ms)) for group, ms in found.items()}
    chosen: list[Mutant] = []
    while len(chosen) < count and any(queues.values()):
        for queue in queues.values():
            if queue and len(chosen) < count:
                chosen.append(pick(rng, queue, chosen))
    return chosen


def pick(rng: random.Random, queue: list[Mutant], chosen: Sequence[Mutant]) -> Mutant:
    """The next mutant of a group: of a kind drawn first, because constants would be most of them; no line twice."""
    kind = rng.choice(sorted({m.kind for m in queue}))
    taken = {m.place for m in chosen}
    found = next((m for m in queue if m.kind == kind and m.place not in taken and changes(m)), queue[0])
    queue.remove(found)
    return found


# Running the tier.


@dataclass
class Lab:
    """Two copies of the tree: one to change, and one that stays as it is."""

    work: Path
    limit: float  # seconds for a mutant
    cpu: bool  # they are seconds of a core

    def __post_init__(self) -> None:
        for name in ("changed", "clean"):
            for part in ("src", "tests"):
                shutil.copytree(ROOT / part, self.work / name / part, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
            shutil.copy(ROOT / "pyproject.toml", self.work / name)

    def test(self, mutant: Mutant, seed: int) -> Outcome:
        """Run the tier against a mutant."""
        path = self.work / "changed" / SOURCE / mutant.path
        text = path.read_text(encoding="utf-8")
        path.write_text(mutant.apply(text), encoding="utf-8")
        outcome = Outcome(mutant)
        try:
            problem = self.import_problem()
            if problem:
                outcome.result, outcome.test = "crashed", problem
            else:
                self._rounds(outcome, seed)
        finally:
            path.write_text(text, encoding="utf-8")
        return outcome

    def import_problem(self) -> str:
        """Why the changed compiler cannot be imported; "" where it can."""
        environment = {**os.environ, "PYTHONPATH": str(self.work / "changed" / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", "import pliant.pipeline, pliant.frontends.onnx.importer"]
        ended = subprocess.run(
            command, cwd=self.work, env=environment, capture_output=True, text=True, timeout=self.limit * 20, check=False
        )
        return ended.stderr.strip().rpartition("\n")[2] or "import" if ended.returncode else ""

    def _rounds(self, outcome: Outcome, seed: int) -> None:
        skipped: list[str] = []
        first = seed * STEP
        while outcome.seconds < self.limit and outcome.result == "survived":
            ran = self.run("changed", tier(outcome.mutant.path), first, self.limit - outcome.seconds, outcome.mutant, skipped)
            outcome.seconds += ran.seconds
            first += STEP * 1000
            if ran.code in (0, TIMED_OUT):
                continue
            if not ran.failed:
                outcome.result, outcome.test = "crashed", ran.tail
            elif self.run("clean", [ran.failed], first - STEP * 1000, self.limit, outcome.mutant, []).code == 0:
                outcome.result, outcome.test = "killed", ran.failed
            else:
                outcome.unsound.append(ran.failed)
                skipped.append(ran.failed)

    def run(self, tree: str, tests: Sequence[str], first: int, limit: float, mutant: Mutant, skipped: Sequence[str]) -> Run:
        """Run tests in one of the trees until one fails."""
        here = self.work / tree
        cache = Path(tempfile.mkdtemp(dir=self.work))
        environment = {
            **os.environ,
            "PYTHONPATH": str(here / "src"),
            "PLIANT_CACHE": str(cache),
            "PLIANT_SEED": str(first),
            "PLIANT_FOCUS": FOCUS.get(Path(mutant.path).stem, "") if "primitives/" in mutant.path else "",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", *tests]
        command += [f"--deselect={name}" for name in skipped]
        before, begun = children_seconds(), time.monotonic()
        try:
            ended = subprocess.run(
                command,
                cwd=here,
                env=environment,
                capture_output=True,
                text=True,
                timeout=limit * (20 if self.cpu else 1),
                preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))) if self.cpu else None,
            )
            code, output = ended.returncode, ended.stdout
        except subprocess.TimeoutExpired:
            code, output = TIMED_OUT, ""
        finally:
            shutil.rmtree(cache, ignore_errors=True)
        seconds = children_seconds() - before if self.cpu else time.monotonic() - begun
        if self.cpu and code in (-24, -9):  # SIGXCPU, SIGKILL: the time is over
            code, output = TIMED_OUT, ""
        failed = re.findall(r"^FAILED (\S+)", output, re.M)
        return Run(code, failed[0] if failed else "", seconds, "\n".join(output.strip().splitlines()[-3:]))


TIMED_OUT = -1000


@dataclass(frozen=True)
class Run:
    """How a run of tests ended."""

    code: int
    failed: str
    seconds: float
    tail: str


def children_seconds() -> float:
    """The seconds of a core that ended children took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tier(path: str) -> list[str]:
    """The random tests, in the order for a file; those that a tree does not have are left out."""
    first = next((tests for prefix, tests in ORDER if path.startswith(prefix)), ())
    listed = dict.fromkeys([*first, *TIER])
    return [f"{PROPERTY}/{t}" for t in listed if (ROOT / PROPERTY / t.split("::")[0]).exists()]


# Reports.


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The outcomes as lines of text."""
    for o in outcomes:
        m = o.mutant
        change = f"{one_line(m.before)}  ->  {one_line(m.after)}"
        yield f"{o.result:9} {o.seconds:6.0f} s  {m.kind:9} {m.place:45} {change}  {o.test.split('::')[-1][:60]}"


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


def main() -> int:
    """Measure, print a table, and answer 1 where fewer are found than asked for."""
    parser = argparse.ArgumentParser(description="mechanical mutants of the compiler against the random tests")
    parser.add_argument("--seed", type=int, action="append", help="which mutants are chosen; may be given several times (default 1, 2, 3)")
    parser.add_argument("--count", type=int, default=40, help="mutants for each seed")
    parser.add_argument("--first", type=int, default=0, help="begin with this one of a seed's mutants")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for a mutant")
    parser.add_argument("--cpu", action="store_true", help="count seconds of a core, not of the clock: for a machine that others use too")
    parser.add_argument("--file", default="", help="only files whose path has this in it")
    parser.add_argument("--list", action="store_true", help="show the mutants, run nothing")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    parser.add_argument("--floor", type=int, default=0, help="fail where fewer of a seed's mutants are found")
    given = parser.parse_args()
    found = all_mutants(given.file)
    worst = given.count
    kept: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as work:
        lab = None if given.list else Lab(Path(work), given.limit, given.cpu)
        for seed in given.seed or [1, 2, 3]:
            outcomes: list[Outcome] = []
            for number, mutant in enumerate(choose(found, seed, given.count)[given.first :], given.first):
                outcome = Outcome(mutant, result="") if lab is None else lab.test(mutant, seed * 1000 + number)
                outcomes.append(outcome)
                print(f"{number:3}", *table([outcome]), flush=True)
                kept.append({"seed": seed, "number": number, **asdict(outcome)})
                if given.json is not None:
                    given.json.write_text(json.dumps(kept, indent=1), encoding="utf-8")
            if lab is not None:
                print(summary(seed, outcomes), flush=True)
                print(*table([o for o in outcomes if o.result == "survived"]), sep="\n", flush=True)
                worst = min(worst, sum(o.result != "survived" for o in outcomes))
    return 1 if worst < given.floor else 0


if __name__ == "__main__":
    sys.exit(main())
