"""Mechanical mutants of the compiler: what can be changed, and which changes a seed chooses.

found = all_mutants()                  # by group of files
for mutant in choose(found, seed=1, count=40): …
"""

from __future__ import annotations

import ast
import random
from collections.abc import Sequence
from dataclasses import dataclass
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
    "passes": ("graph/passes/*.py", "loop/passes/*.py", "lower/*.py", "lower/*/*.py", "lower/ops/templates/*.py"),
    "importers": ("frontends/onnx/*.py", "frontends/onnx/rules/*.py"),
}
# Reports about a model for people (`pliant inspect`, `pliant check`): nothing is imported by them.
REPORTS = ("frontends/onnx/summary.py", "frontends/onnx/memory.py", "frontends/onnx/compare.py")


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
    seen_at: tuple[int, ...]  # the lines that have to run for the change to show: of a check and a guard, what is never run any more
    around: tuple[int, int] | None = None  # the statement's lines, where the line of a part alone is not told to tracers

    @property
    def place(self) -> str:
        """Its file and line."""
        return f"{self.path}:{self.line}"

    def apply(self, text: str) -> str:
        """The file with the change."""
        return text[: self.start] + self.after + text[self.end :]


class Finder(ast.NodeVisitor):
    """Finds the places of a file that can be changed."""

    def __init__(self, group: str, path: str, text: str) -> None:
        self.group, self.path, self.text = group, path, text
        self.lines = [0]
        for line in text.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.rows = text.splitlines(keepends=True)
        self.found: list[Mutant] = []
        self.inside = False  # of a function
        self.around = (1, len(self.rows))  # a statement of a module runs when it is imported: any line of the file will do

    def offset(self, line: int, column: int) -> int:
        """The character at a line and a column of bytes."""
        return self.lines[line - 1] + len(self.rows[line - 1].encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def add(self, kind: str, node: ast.expr, after: str, body: ast.stmt | None = None) -> None:
        start, end = self.span(node)
        lines, around = ((node.lineno,), self.around) if body is None else (_lines(body), None)
        self.found.append(Mutant(self.group, self.path, node.lineno, kind, self.text[start:end], after, start, end, lines, around))

    def source(self, node: ast.expr) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def visit_If(self, node: ast.If) -> None:
        """Checks and guards."""
        if "TYPE_CHECKING" in ast.dump(node.test):
            return
        if _chosen(node.test):  # a decision, of which the other value is as good
            for s in (*node.body, *node.orelse):
                self.visit(s)
            return
        last = node.body[-1]
        if len(node.body) <= 2 and isinstance(last, ast.Raise):
            if not _internal(last):
                self.add("check", node.test, "False", node.body[0])
        elif len(node.body) == 1 and isinstance(last, (ast.Return, ast.Continue)) and not node.orelse:
            self.add("guard", node.test, "False", last)
        self.generic_visit(node)

    def visit(self, node: ast.AST) -> None:
        """Visit a node, and know the statement that its parts belong to."""
        before = self.around
        if isinstance(node, ast.stmt) and self.inside:
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno
            self.around = (node.lineno, max(node.lineno, last or 0))
        super().visit(node)
        self.around = before

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
        """Bounds; not those of a limit that has a name: whether 4096 of something or 4097 are too many is a choice."""
        words = {ast.Lt: ("<", "<="), ast.Gt: (">", ">=")}
        if len(node.ops) == 1 and type(node.ops[0]) in words and not any(map(_limit, (node.left, node.comparators[0]))):
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
        """The body of a function, and its defaults, which matter wherever it is called."""
        if node.name in ("__repr__", "__hash__"):
            return
        before, outside = self.around, self.inside
        self.around = (node.body[0].lineno, node.end_lineno or node.lineno)
        self.visit(node.args)
        self.around, self.inside = before, True
        for s in node.body:
            self.visit(s)
        self.inside = outside


def _chosen(e: ast.expr) -> bool:
    """Whether an expression is a decision, or its opposite."""
    if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not):
        return _chosen(e.operand)
    return isinstance(e, ast.Call) and _decides(e.func)


def _limit(e: ast.expr) -> bool:
    """Whether an expression has a number with a name in it, such as `MAX_UNROLL`."""
    return any(isinstance(n, ast.Name) and n.id.isupper() and len(n.id) > 2 for n in ast.walk(e))


def _lines(s: ast.stmt) -> tuple[int, ...]:
    """The lines of a statement."""
    return tuple(range(s.lineno, (s.end_lineno or s.lineno) + 1))


def _internal(s: ast.Raise) -> bool:
    """Whether an error says that the compiler itself is wrong: only a second mistake shows that such a check is gone."""
    return any(isinstance(n, ast.Name) and n.id in ("InternalError", "AssertionError") for n in ast.walk(s))


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
        listed = {p for pattern in patterns for p in (ROOT / SOURCE).glob(pattern) if p.name != "__init__.py" or "library" in str(p)}
        paths = sorted(listed - {ROOT / SOURCE / name for name in REPORTS})
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
