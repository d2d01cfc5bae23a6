"""Runs the random tier against a mutant, in a copy of the tree, until a test fails or the time is over.

with tempfile.TemporaryDirectory() as work:
    outcome = Lab(Path(work), reach, limit=180, cpu=True).test(mutant, seed=1)
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mutate import ROOT, SOURCE, Mutant
from reach import Reach

PROPERTY = "tests/property"
SCHEDULES = "test_schedules.py::test_random_schedules_keep_the_meaning"
SKETCHES = "test_schedules.py::test_what_is_legal_is_accepted"
RULES = "test_schedules.py::test_default_rules_keep_the_meaning"
FORMS = "test_schedules.py::test_default_rules_take_the_forms_that_they_are_for"
KERNELS = "test_schedules.py::test_default_rules_on_the_kernels"
LOOPS = "test_schedules.py::test_default_rules_keep_the_meaning_of_loop_programs"
# The random tier: every module of random programs, schedules, graphs, models and expressions. A list, so that a test that is no
# random one does not get into the measure unseen.
TIER = (
    SCHEDULES,
    SKETCHES,
    "test_wrong_claims.py",
    "test_random_claims.py",
    "test_broken_programs.py",
    RULES,
    FORMS,
    KERNELS,
    LOOPS,
    "test_loop_programs.py",
    "test_checked_programs.py",
    "test_loop_regions.py",
    "test_compiled_graphs.py",
    "test_graphs.py",
    "test_random_passes.py",
    "test_random_patterns.py",
    "test_random_binding.py",
    "test_random_states.py",
    "test_refused_compilations.py",
    "test_random_operators.py",
    "test_random_places.py",
    "test_random_rows.py",
    "test_convolutions.py",
    "test_random_decisions.py",
    "test_random_choices.py",
    "test_random_lowering.py",
    "test_random_onnx.py",
    "test_random_files.py",
    "test_random_nodes.py",
    "test_random_microsoft.py",
    "test_random_regex.py",
    "test_artifacts.py",
    "test_replays.py",
    "test_mutated_text.py",
)
# What finds mistakes in a file soonest: the first prefix that fits.
ORDER: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("schedule/primitives/", (SKETCHES, SCHEDULES, RULES, KERNELS)),
    ("schedule/library/convolution", ("test_convolutions.py", "test_compiled_graphs.py", RULES, KERNELS)),
    ("schedule/library/sliding_window", ("test_convolutions.py", "test_compiled_graphs.py", RULES)),
    ("schedule/library/", (FORMS, KERNELS, RULES, "test_compiled_graphs.py", "test_convolutions.py", "test_random_rows.py", LOOPS)),
    ("schedule/", (SKETCHES, SCHEDULES, RULES, "test_wrong_claims.py")),
    (
        "loop/verify",
        (
            "test_broken_programs.py",
            "test_wrong_claims.py",
            "test_random_claims.py",
            SCHEDULES,
            "test_loop_programs.py",
            "test_checked_programs.py",
        ),
    ),
    ("loop/passes/", ("test_loop_programs.py", SCHEDULES, RULES, "test_checked_programs.py", "test_loop_regions.py")),
    (
        "graph/passes/",
        ("test_random_patterns.py", "test_random_passes.py", "test_graphs.py", "test_compiled_graphs.py", "test_random_operators.py"),
    ),
    (
        "lower/",
        ("test_compiled_graphs.py", "test_random_operators.py", "test_random_places.py", "test_convolutions.py", "test_random_rows.py"),
    ),
    ("frontends/onnx/regex", ("test_random_regex.py",)),
    ("frontends/onnx/", ("test_random_nodes.py", "test_random_microsoft.py", "test_random_onnx.py")),
)
# The moves of random schedules that use a file of primitives: the player then makes them more often.
FOCUS: dict[str, str] = {
    "block_layout": "iterators reindex",
    "blockize": "blockize split",
    "blockize_group": "blockize",
    "compact": "compact",
    "cache_stages": "write_cache read_cache scope lanes_then_cache",
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


@dataclass
class Outcome:
    """What the random tier says of a mutant."""

    mutant: Mutant
    result: str = "survived"  # killed | crashed (the compiler cannot be imported) | survived
    test: str = ""
    why: str = ""
    reached: int = 0  # tests that are known to run what is changed
    seconds: float = 0.0
    unsound: list[str] = field(default_factory=list)  # tests that fail without the change too


@dataclass
class Lab:
    """Two copies of the tree: one to change, and one that stays as it is."""

    work: Path
    reach: Reach
    limit: float  # seconds for a mutant
    cpu: bool  # they are seconds of a core

    def __post_init__(self) -> None:
        for name in ("changed", "clean"):
            for part in ("src", "tests", "benchmarks"):  # whose layers some tests take
                shutil.copytree(ROOT / part, self.work / name / part, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
            shutil.copy(ROOT / "pyproject.toml", self.work / name)
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *tier()]
        environment = {**os.environ, "PYTHONPATH": str(self.work / "clean" / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        ended = subprocess.run(command, cwd=self.work / "clean", env=environment, capture_output=True, text=True, check=False)
        if ended.returncode:  # every mutant would seem found
            raise SystemExit(f"the tests cannot be collected in a copy of the tree:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")

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
        """The tests that are known to run the change, with their usual seeds; then their functions, and all others, with new seeds."""
        tests = self.reach.of(outcome.mutant)
        outcome.reached = len(tests)
        known = self.reach.order(tests, 2 * self.limit)
        if known:
            self._round(outcome, known, 0)
        functions = self.reach.functions(tests) or relevant(outcome.mutant.path)
        first = seed * STEP
        while outcome.seconds < self.limit and outcome.result == "survived":
            before = outcome.seconds
            self._round(outcome, functions, first, turns=True)
            if outcome.seconds - before < 1:  # nothing could be run
                return
            first += STEP * 1000

    def _round(self, outcome: Outcome, tests: Sequence[str], first: int, turns: bool = False) -> None:
        """Run some tests, again without those that fail on the clean tree too, until one is right to fail or all have passed."""
        while outcome.seconds < self.limit and outcome.result == "survived":
            ran = self.run("changed", tests, first, self.limit - outcome.seconds, outcome, turns)
            outcome.seconds += ran.seconds
            if ran.code in (0, TIMED_OUT, NO_TESTS):
                return
            if not ran.failed:
                outcome.result, outcome.test = "crashed", ran.tail
            elif self.run("clean", [ran.failed], first, self.limit, outcome).code == 0:
                outcome.result, outcome.test, outcome.why = "killed", ran.failed, ran.why
            else:
                outcome.unsound.append(ran.failed)

    def run(self, tree: str, tests: Sequence[str], first: int, limit: float, outcome: Outcome, turns: bool = False) -> Run:
        """Run tests in one of the trees until one fails."""
        here = self.work / tree
        cache = Path(tempfile.mkdtemp(dir=self.work))
        path = outcome.mutant.path
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(here / "src"), str(Path(__file__).parent)]),
            "PLIANT_CACHE": str(cache),
            "PLIANT_SEED": str(first),
            "PLIANT_FOCUS": FOCUS.get(Path(path).stem, "") if first and "primitives/" in path else "",
            "PLIANT_OPERATORS": operators(path) if first else "",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
        command += ["-p", "interleave_plugin"] if turns else []
        command += [f"--timeout={HANGS}", *tests, *(f"--deselect={name}" for name in outcome.unsound)]
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
        failed = re.findall(r"^FAILED (\S+)(?: - (.*))?", output, re.M)
        test, why = failed[0] if failed else ("", "")
        return Run(code, test, seconds, "\n".join(output.strip().splitlines()[-3:]), why)


TIMED_OUT = -1000
NO_TESTS = 5  # pytest's code where all of them are left out
HANGS = 120  # seconds for a test that takes ten at most: a mutant that never ends is seen


@dataclass(frozen=True)
class Run:
    """How a run of tests ended."""

    code: int
    failed: str
    seconds: float
    tail: str
    why: str = ""


def children_seconds() -> float:
    """The seconds of a core that ended children took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def operators(path: str) -> str:
    """The operators that a file of the importer is about: the names in it that begin with a capital letter."""
    if not path.startswith("frontends/onnx/"):
        return ""
    return " ".join(sorted(set(re.findall(r'"([A-Z][A-Za-z0-9]+)"', (ROOT / SOURCE / path).read_text(encoding="utf-8")))))


def relevant(path: str) -> list[str]:
    """The tests that find mistakes in a file soonest."""
    return [f"{PROPERTY}/{t}" for t in next((tests for prefix, tests in ORDER if path.startswith(prefix)), TIER)]


def tier() -> list[str]:
    """The random tests."""
    return [f"{PROPERTY}/{t}" for t in TIER]
