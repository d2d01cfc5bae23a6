"""Mechanical mutants of the compiler: what can be changed, and which changes a seed chooses.

found = all_mutants()                  # by group of files
for mutant in choose(found, seed=1, count=40): …
"""

from __future__ import annotations

import ast
import hashlib
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
KINDS = ("conjunct", "bound", "constant", "check", "guard")
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
    function: str = ""  # the functions and classes that it stands in
    number: int = 0  # among equal changes of that function

    @property
    def place(self) -> str:
        """Its file and line."""
        return f"{self.path}:{self.line}"

    def lot(self, seed: int) -> bytes:
        """Its place in the order that a seed draws: a hash of what it is, which changes elsewhere in the compiler leave as it was."""
        what = f"{seed}|{self.path}|{self.function}|{self.kind}|{self.before}|{self.after}|{self.number}"
        return hashlib.sha256(what.encode()).digest()

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
        self.scope: tuple[str, ...] = ()  # the functions and classes around
        self.marked = False  # inside of `worth(…)` or of a function under `@heuristic`: numbers and comparisons only choose
        self.places = False  # inside of a subscript
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
        scope, before = ".".join(self.scope), self.text[start:end]
        number = sum((m.function, m.kind, m.before, m.after) == (scope, kind, before, after) for m in self.found)
        self.found.append(Mutant(self.group, self.path, node.lineno, kind, before, after, start, end, lines, around, scope, number))

    def source(self, node: ast.expr) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def visit_If(self, node: ast.If) -> None:
        """Checks and guards."""
        if "TYPE_CHECKING" in ast.dump(node.test):
            return
        if _chosen(node.test):  # a decision, of which the other value is as good
            for s in (node.test, *node.body, *node.orelse):
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
        """Decisions are not changed: whichever value of its domain one has, the results are the same. Of what `worth` asks, neither is what
        only chooses; a type test that is left out may fail."""
        if not _decides(node.func):
            before, self.marked = self.marked, self.marked or _is_worth(node.func)
            self.generic_visit(node)
            self.marked = before

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """A place in a sequence: a wrong one fails, wherever it stands."""
        self.visit(node.value)
        before, self.places = self.places, True
        self.visit(node.slice)
        self.places = before

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Not the condition that chooses between two texts for people, of which one at least is made up of parts."""
        texts = (node.body, node.orelse)
        if all(map(_is_text, texts)) and any(isinstance(x, ast.JoinedStr) for x in texts):
            return
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
                if not self.marked or _is_type_test(node.values[n]):
                    self.add("conjunct", node, f"({' and '.join(rest)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Bounds; not those of a limit that has a name: whether 4096 of something or 4097 are too many is a choice."""
        words = {ast.Lt: ("<", "<="), ast.Gt: (">", ">=")}
        named = any(map(_limit, (node.left, node.comparators[0])))
        if len(node.ops) == 1 and type(node.ops[0]) in words and not named and not self.marked:
            _, new = words[type(node.ops[0])]
            self.add("bound", node, f"({self.source(node.left)}) {new} ({self.source(node.comparators[0])})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Whole numbers; of a first place not the last one, which is the same where there is only one."""
        if type(node.value) is int and (self.places or not self.marked):
            for step in (1,) if self.places and node.value == 0 else (1, -1):
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
        before, outside, scope, marked = self.around, self.inside, self.scope, self.marked
        self.around, self.scope = (node.body[0].lineno, node.end_lineno or node.lineno), (*scope, node.name)
        self.marked = marked or any(isinstance(d, ast.Name) and d.id == "heuristic" for d in node.decorator_list)
        self.visit(node.args)
        self.around, self.inside = before, True
        for s in node.body:
            self.visit(s)
        self.inside, self.scope, self.marked = outside, scope, marked

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """The body of a class, whose name the functions in it bear."""
        scope, self.scope = self.scope, (*self.scope, node.name)
        self.generic_visit(node)
        self.scope = scope


def _chosen(e: ast.expr) -> bool:
    """Whether an expression is a decision, or its opposite."""
    if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not):
        return _chosen(e.operand)
    return isinstance(e, ast.Call) and (_decides(e.func) or _is_worth(e.func))


def _is_worth(f: ast.expr) -> bool:
    """Whether what is called is the mark of a condition that only chooses (`support/choices.py`)."""
    return isinstance(f, ast.Name) and f.id == "worth"


def _is_type_test(e: ast.expr) -> bool:
    """Whether a condition says that another one can be computed at all: a type, None, or that something is there."""
    if isinstance(e, ast.Compare):
        return isinstance(e.ops[0], (ast.Is, ast.IsNot))
    return isinstance(e, (ast.Name, ast.Attribute)) or (
        isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id == "isinstance"
    )


def _is_text(e: ast.expr) -> bool:
    return isinstance(e, ast.JoinedStr) or (isinstance(e, ast.Constant) and isinstance(e.value, str))


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
    """So many mutants, drawn by the seed: as many of each group as of the others, of kinds drawn evenly."""
    rng = random.Random(f"mutants {seed}")
    queues = {group: sorted(ms, key=lambda m: m.lot(seed)) for group, ms in found.items()}
    chosen: list[Mutant] = []
    while len(chosen) < count and any(queues.values()):
        for queue in queues.values():
            if queue and len(chosen) < count:
                chosen.append(pick(rng, queue, chosen))
    return chosen


def pick(rng: random.Random, queue: list[Mutant], chosen: Sequence[Mutant]) -> Mutant:
    """The next mutant of a group: of a kind drawn first, because constants would be most of them; no line twice."""
    kind = rng.choice(KINDS)
    taken = {m.place for m in chosen}
    found = next((m for m in queue if m.kind == kind and m.place not in taken and changes(m)), queue[0])
    queue.remove(found)
    return found
