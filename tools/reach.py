"""Which random tests run which lines of the compiler: recorded once for a tree, and kept.

reach = recorded()                               # minutes, the first time
reach.tests("schedule/invariants.py", [107, 108])     # those that run one of the lines
reach.order(tests)                               # cheap ones first, of many kinds
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from mutate import GROUPS, ROOT, SOURCE, Mutant

SECONDS = 25  # of a core, for the tests of one function while they are traced


@dataclass(frozen=True)
class Reach:
    """The tests that were recorded, their seconds, and for each line of each file a number whose bits are tests."""

    names: Sequence[str]
    seconds: Sequence[float]
    lines: dict[str, dict[int, int]]  # by the path below src/pliant

    @staticmethod
    def read(paths: Iterable[Path]) -> Reach:
        """The maps that the plugin wrote about a tree, as one."""
        names: list[str] = []
        seconds: list[float] = []
        lines: dict[str, dict[int, int]] = {}
        for path in paths:
            data = json.loads(path.read_text(encoding="utf-8"))
            for name, of in data["lines"].items():
                all_of = lines.setdefault(below(name), {})
                for line, mask in of.items():
                    all_of[int(line)] = all_of.get(int(line), 0) | int(mask, 16) << len(names)
            names += [t for t, _ in data["tests"]]
            seconds += [s for _, s in data["tests"]]
        return Reach(names, seconds, lines)

    def mask(self, path: str, lines: Iterable[int]) -> int:
        """The tests that run one of some lines, as bits."""
        of, mask = self.lines.get(path, {}), 0
        for line in lines:
            mask |= of.get(line, 0)
        return mask

    def of(self, mutant: Mutant) -> list[int]:
        """The tests that run what a mutant changes."""
        mask = self.mask(mutant.path, mutant.seen_at)
        if not mask and mutant.around is not None:
            mask = self.mask(mutant.path, range(mutant.around[0], mutant.around[1] + 1))
        return [n for n in range(len(self.names)) if mask >> n & 1]

    def order(self, tests: Sequence[int], limit: float) -> list[str]:
        """Tests as long as the time lasts: of every function the cheapest one, then of every function the next one."""
        by: dict[str, list[int]] = {}
        for n in sorted(tests, key=lambda n: self.seconds[n]):
            by.setdefault(function(self.names[n]), []).append(n)
        chosen: list[str] = []
        total = 0.0
        for row in zip_longest(*by.values()):
            for n in row:
                if n is not None and total < limit:
                    total += self.seconds[n]
                    chosen.append(self.names[n])
        return chosen

    def functions(self, tests: Sequence[int]) -> list[str]:
        """The functions of tests: those first of which a second of a core has the most tests."""
        cost: dict[str, float] = {}
        for name, seconds in zip(self.names, self.seconds, strict=True):
            cost[function(name)] = cost.get(function(name), 0.05) + seconds
        share = {f: sum(function(self.names[n]) == f for n in tests) / cost[f] for f in {function(self.names[n]) for n in tests}}
        return sorted(share, key=lambda f: (-share[f], f))


def below(path: str) -> str:
    """A path of any tree below src/pliant."""
    parts = Path(path).parts
    return str(Path(*parts[len(parts) - parts[::-1].index(SOURCE.name) :]))


def function(test: str) -> str:
    """The function of a test, without its parameters."""
    return test.partition("[")[0]


def digest(module: Path, kept: Mapping[str, bytes]) -> str:
    """What the map of a module of tests depends on: the compiler, and the files of tests that it imports."""
    found = hashlib.sha256(sys.version.encode())
    for text in (*kept.values(), *(p.read_bytes() for p in imported(module))):
        found.update(text + b"\0")
    return found.hexdigest()[:12]


def imported(module: Path) -> list[Path]:
    """A file of tests, and those of the folder of tests that it needs."""
    needed, queue = {module}, [module]
    while queue:
        tree = ast.parse(queue.pop().read_text(encoding="utf-8"))
        names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
        found = {p for name in names for p in (ROOT / "tests" / f"{name}.py", module.parent / f"{name}.py") if p.exists()}
        queue += found - needed
        needed |= found
    return sorted(needed)


def recorded(tests: Sequence[str], folder: Path, stale: bool = False) -> Reach:
    """The map of this tree, of which parts are recorded that are not there yet; where `stale`, those of an older tree will do."""
    source = {str(p): p.read_bytes() for p in sorted((ROOT / SOURCE).rglob("*.py"))}
    by: dict[str, list[str]] = {}
    for test in tests:
        by.setdefault(test.partition("::")[0], []).append(test)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for module, of in by.items():
        stem = Path(module).stem
        path = folder / f"{stem}-{digest(ROOT / module, source)}.json"
        older = sorted(folder.glob(f"{stem}-*.json"), key=lambda p: p.stat().st_mtime)
        if not path.exists() and stale and older:
            path = older[-1]
        if not path.exists():
            record(of, path)
        paths.append(path)
    return Reach.read(paths)


def record(tests: Sequence[str], path: Path) -> None:
    """Run the tests of a module once, and write its map."""
    print(f"recording which tests run which lines: {path.stem}", file=sys.stderr, flush=True)
    patterns = [str(ROOT / SOURCE / pattern) for group in GROUPS.values() for pattern in group]
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tools")]),
            "PLIANT_CACHE": cache,
            "PYTHONDONTWRITEBYTECODE": "1",
            "REACH_FILES": "\n".join(patterns),
            "REACH_OUTPUT": str(path),
            "REACH_SECONDS": str(SECONDS),
        }
        options = ["-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-p", "reach_plugin", "--timeout=1800"]
        ended = subprocess.run([sys.executable, "-m", "pytest", *options, *tests], cwd=ROOT, env=environment, check=False)
    if ended.returncode:
        print("some tests fail without any change; they are not used", file=sys.stderr)
