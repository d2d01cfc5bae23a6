"""Source text and syntax tree of a decorated Python function, with exact locations, and the names that it can see.

Both languages (kernels and graph functions) are parsed from the syntax tree; nothing of the function is executed. The tree is made from
the lines of the file as they are (only the function's own), so locations need no correction for indentation.

    source = source_of(fn)
    source.tree                  # ast.FunctionDef
    source.span(node)            # where a node is, for errors
    source.resolve(node)         # the Python object that a (dotted) name means
"""

from __future__ import annotations

import ast
import builtins
import difflib
import linecache
import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from .errors import Error
from .record import dataclass
from .source import Span, caller_span

# The builtins that have a meaning in the languages; all others are reported as not part of them.
ALLOWED_BUILTINS: dict[str, object] = {
    n: getattr(builtins, n) for n in ("range", "min", "max", "abs", "pow", "round", "bool", "float", "int", "len")
}


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a function: its syntax tree, the lines of its file, and the names in scope."""

    file: str
    lines: Sequence[str]  # the lines of the whole file; line 1 is lines[0]
    tree: ast.FunctionDef
    scope: Mapping[str, object]  # closure, then the enclosing function's locals, then globals, then ALLOWED_BUILTINS

    def span(self, node: ast.AST) -> Span:
        """Returns the location of `node` in the file; only its first line, if it has several."""
        return span_of(node, self.file, self.lines)

    def resolve(self, node: ast.expr) -> object:
        """Returns the object that a name or a dotted name means in the enclosing Python scopes; raises an Error if it is undefined."""
        if isinstance(node, ast.Attribute):
            owner = self.resolve(node.value)
            try:
                return getattr(owner, node.attr)
            except AttributeError:
                where = self.span(node)
                raise Error(f"`{ast.unparse(node.value)}` has no `{node.attr}`", where=where, help=near(node.attr, dir(owner))) from None
        if not isinstance(node, ast.Name):
            raise Error("a name is expected here", where=self.span(node))
        if node.id in self.scope:
            return self.scope[node.id]
        raise self.undefined(node)

    def undefined(self, node: ast.Name, known: Iterable[str] = ()) -> Error:
        """The error for an undefined name; `known` are further names that could have been meant."""
        if hasattr(builtins, node.id):
            what = f"`{node.id}` is a Python builtin, and not part of this language"
            help_ = (
                near(node.id, known) or f"the function is compiled, not run by Python: it cannot call Python functions such as {node.id}"
            )
            return Error(what, where=self.span(node), help=help_)
        help_ = near(node.id, [*known, *self.scope]) or "names come from the function itself, its enclosing functions and its module"
        return Error(f"`{node.id}` is not defined", where=self.span(node), help=help_)


def span_of(node: ast.AST, file: str, lines: Sequence[str]) -> Span:
    """Returns the location of `node`, a node of the tree of `lines`, as a Span."""
    at: Any = node
    line = lines[at.lineno - 1].rstrip("\n") if at.lineno <= len(lines) else ""
    start = _characters(line, at.col_offset)
    end = _characters(line, at.end_col_offset) if at.end_lineno == at.lineno else len(line.rstrip())
    if isinstance(node, ast.For | ast.While | ast.If | ast.With | ast.FunctionDef) and line.endswith(":"):
        end = len(line) - 1
    return Span(file, at.lineno, start, end, line)


def _characters(line: str, offset: int) -> int:
    """Converts a column in UTF-8 bytes, as `ast` gives it, to a column in characters."""
    return offset if line.isascii() else len(line.encode()[:offset].decode(errors="replace"))


def near(name: str, known: Iterable[str]) -> str:
    """Returns the help text `did you mean ...?`, or "" if nothing is close to `name`."""
    close = difflib.get_close_matches(name, list(dict.fromkeys(known)), n=3, cutoff=0.7)
    return f"did you mean {' or '.join(f'`{f}`' for f in close)}?" if close else ""


def source_of(fn: Callable[..., Any]) -> Source:
    """Returns the source of a Python function written with `def`.

    Raises an Error for a lambda, an async function or another object, and if there is no source text (REPL, exec, `python -c`).
    """
    if not isinstance(fn, FunctionType) or fn.__name__ == "<lambda>":
        shown = "a lambda" if isinstance(fn, FunctionType) else f"an object of type `{type(fn).__name__}`"
        raise Error(f"a function written with `def` is expected here, not {shown}", where=caller_span())
    code = fn.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, fn.__globals__)
    if not lines:
        raise _no_source(code)
    tree = _parse_from(lines, code)
    if isinstance(tree, ast.AsyncFunctionDef):
        where = span_of(tree, code.co_filename, lines)
        raise Error(f"`{code.co_name}` is an async function", where=where, help="write it with `def`")
    return Source(code.co_filename, lines, tree, _scope(fn))


def _no_source(code: CodeType) -> Error:
    """Returns the error for a function without source text."""
    where = caller_span()
    return Error(
        f"no source: the text of function `{code.co_name}` cannot be read",
        where=where if where is not None and where.text else None,
        facts=[f"it was defined in {code.co_filename}, line {code.co_firstlineno}"],
        help="put the function into a file: functions from exec(), `python -c` and some interactive prompts leave no source text",
    )


def _parse_from(lines: list[str], code: CodeType) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """Returns the tree of the function that starts (with its decorators) at the code's first line; raises an Error if it is not there.

    Only the lines of the function are parsed: the text is cut before a line that is not indented deeper than the `def`. A cut inside a
    bracket, a string or a decorator list is a syntax error, and then the next such line is tried.
    """
    first = code.co_firstlineno - 1
    head = lines[first] if first < len(lines) else ""
    indent = len(head) - len(head.lstrip())
    for end in range(first + 1, len(lines) + 1):
        if end < len(lines):
            line = lines[end]
            if not line.strip() or len(line) - len(line.lstrip()) > indent:
                continue
        try:
            tree = ast.parse(("if 1:\n" if indent else "\n") + "".join(lines[first:end]))
        except SyntaxError:
            continue
        body = tree.body[0].body if indent and isinstance(tree.body[0], ast.If) else tree.body
        function = body[0] if body else None
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or function.name != code.co_name:
            break
        ast.increment_lineno(function, first - 1)
        return function
    raise Error(
        f"the source of function `{code.co_name}` is not where it was when it was imported",
        facts=[f"expected at {code.co_filename}, line {code.co_firstlineno}"],
        help="the file has changed since: start the program anew",
    )


def closure_of(fn: FunctionType) -> dict[str, object]:
    """The variables of enclosing functions that a function uses, as they are now."""
    closure: dict[str, object] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            closure[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return closure


def _scope(fn: FunctionType) -> Mapping[str, object]:
    """Returns the names in a function's scope: closure, enclosing locals, globals, builtins."""
    return ChainMap(closure_of(fn), _enclosing_locals(fn.__code__), fn.__globals__, ALLOWED_BUILTINS)


def _enclosing_locals(code: CodeType) -> dict[str, object]:
    """Returns the locals of the function that is currently defining `code`; empty if that is a module or has ended.

    They are needed because names used only in annotations are not in the closure.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if code in frame.f_code.co_consts:
            return dict(frame.f_locals) if frame.f_locals is not frame.f_globals else {}
        if frame.f_back is None:
            break
        frame = frame.f_back
    return {}
