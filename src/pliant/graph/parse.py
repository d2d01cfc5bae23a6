"""The parser of graph functions: `parse_function` reads a decorated function, `parse_module` printed text. Neither executes user code.

`parse_stmt` parses statements, `parse_expr` expressions.

    @function
    def mlp(x: Tensor[f32, n, 64], w: Tensor[f32, 64, 128]) -> Tensor[f32, n, 128]:
        return ops.silu(x @ w)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..dtype import ALL as DTYPES
from ..support.errors import Error, UnsupportedError
from ..support.record import dataclass
from ..support.resolve import ALLOWED_BUILTINS, Source, near, source_of, span_of
from ..support.source import Span
from ..sym import script, spec
from ..sym.relations import parse_keywords
from . import opset as ops
from .node import Callee, Function
from .parse_stmt import Statements

PUBLIC: dict[str, object] = {
    **{name: getattr(spec, name) for name in spec.__all__},
    **{name: getattr(script, name) for name in ("cast", "select", "min", "max", "inf", "nan")},
    **{name: found for name, found in DTYPES.items() if name != "bool"},
    "ops": ops,
    "match_cast": ops.match_cast,
    "tuple": tuple,
}


def parse_function(fn: Callable[..., Any]) -> Function:
    """Parses the source of a decorated Python function into a graph function."""
    source = source_of(fn)
    return _parse(source)


def _parse(source: Source) -> Function:
    parser = Statements(source)
    with parser.builder:
        return parser.function()


# Printed text.


@dataclass(frozen=True, slots=True)
class _Named:
    """The object that a name in printed text refers to: a graph function or a loop program."""

    graph: Function | None = None
    callee: Callee | None = None


def parse_module(
    text: str,
    callees: Mapping[str, Callee],
    file: str = "<text>",
    *,
    constants: Mapping[str, Any] | None = None,
    hosts: Mapping[str, Callable[..., Any]] | None = None,
) -> dict[str, Function]:
    """Parses printed text; returns its graph functions by name. `callees`, `constants` and `hosts` resolve what the text only names.

    Nothing is executed. Raises for text that is not Python, and for anything but imports, dims and functions.
    """
    lines = text.splitlines(keepends=True)
    try:
        tree = ast.parse(text)
    except SyntaxError as problem:
        where = Span(file, problem.lineno or 1, (problem.offset or 1) - 1, problem.end_offset or 0, (problem.text or "").rstrip("\n"))
        raise Error(f"this is not Python: {problem.msg}", where=where) from None
    scope: dict[str, object] = {**ALLOWED_BUILTINS, **PUBLIC, "constants": dict(constants or {}), **(hosts or {})}
    scope.update({name: _Named(callee=c) for name, c in callees.items()})
    functions: dict[str, Function] = {}
    for node in tree.body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(ast.Constant(str())):
                pass
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("dim"))):
                scope[name] = _dim(node, file, lines, scope)
            case ast.FunctionDef(name) if any(ast.unparse(d) == "function" for d in node.decorator_list):
                functions[name] = _parse(Source(file, lines, node, scope))
                scope[name] = _Named(graph=functions[name])
            case ast.FunctionDef(name) if name in callees:
                pass
            case _:
                help_ = near(getattr(node, "name", ""), callees) or "a module has imports, dims, and functions decorated with @function"
                raise UnsupportedError("this is not part of a graph module", where=span_of(node, file, lines), help=help_)
    return functions


def _dim(node: ast.Assign, file: str, lines: Sequence[str], scope: Mapping[str, object]) -> object:
    """Parses a declaration `m = dim("m", max=64, le=n)`, whose arguments must be literals, or expressions of dims before it."""
    call = node.value
    assert isinstance(call, ast.Call)
    try:
        args = [ast.literal_eval(a) for a in call.args]
        keywords = parse_keywords(call, scope)
        dim: object = spec._dim(*args, **keywords)
    except (ValueError, TypeError) as problem:
        raise Error(f"a dim is declared with literals: {problem}", where=span_of(node, file, lines)) from None
    except Error as error:
        error.places = [(span_of(node, file, lines), "")]
        raise
    return dim
