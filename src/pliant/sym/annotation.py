"""Parser of annotations from the syntax tree: `Tensor[f32, n, 2 * n, strides(s, 1)]`, `f32`, or the name of one.

Annotations are parsed, not evaluated, so that quoted and postponed annotations work and an error can point at the wrong extent.

    read_annotation(parser, node)        # -> TensorSpec | DType | whatever else the names mean
"""

from __future__ import annotations

import ast

from ..dtype import bool_
from ..support.errors import Error, counted
from .expr import Const, Expr
from .parse import ExprParser
from .spec import MARKERS, Marker, TensorSpec
from .spec import strides as strides_word


def read_annotation(parser: ExprParser, node: ast.expr) -> object:
    """Parses an annotation of a parameter and returns its value: a TensorSpec for `Tensor[...]`, else the object that a name means.

    A quoted annotation is parsed from its text. Raises for a subscript of something that is not a marker, and for other syntax.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return read_annotation(parser, _quoted(parser, node, node.value))
    if isinstance(node, ast.Subscript):
        marker = parser.resolve(node.value) if isinstance(node.value, ast.Name | ast.Attribute) else None
        if not isinstance(marker, Marker):
            help_ = f"tensors are annotated with {', '.join(MARKERS.values())}"
            raise parser.error(node, f"`{ast.unparse(node.value)}[...]` is no annotation of this language", help=help_)
        return _spec(parser, node, marker)
    if isinstance(node, ast.Name | ast.Attribute):
        value = parser.resolve(node)
        return bool_ if value is bool else value
    raise parser.error(node, f"`{ast.unparse(node)}` is no annotation of this language", help="for example Tensor[f32, n] or f32")


def _quoted(parser: ExprParser, node: ast.Constant, text: str) -> ast.expr:
    """Parses the text of a quoted annotation into a syntax tree; raises an error if it is not Python."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        raise parser.error(node, f'the annotation "{text}" is not Python') from None
    for inner in ast.walk(tree):
        ast.copy_location(inner, node)
    return tree


def _spec(parser: ExprParser, node: ast.Subscript, marker: Marker) -> TensorSpec:
    """Parses `Tensor[dtype, extents…, strides(…)]` into a TensorSpec with the role of its marker.

    Raises unless there is a stride per extent.
    """
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    dtype = parser.any_dtype(items[0])
    extents, steps = items[1:], None
    last = items[-1]
    if isinstance(last, ast.Call) and isinstance(last.func, ast.Name | ast.Attribute) and parser.resolve(last.func) is strides_word:
        extents = extents[:-1]
        parser.arguments(last, -1)
        if len(last.args) != len(extents):
            raise parser.error(
                last,
                f"{counted(len(last.args), 'stride')} for {counted(len(extents), 'dimension')}",
                help="give one stride for each dimension",
            )
        steps = tuple(parser.index(e) for e in last.args)
    return TensorSpec(dtype, tuple(_extent(parser, e) for e in extents), steps, marker.role)


def _extent(parser: ExprParser, node: ast.expr) -> Expr:
    """Parses one extent of a shape; raises an error if it is a text or a negative number."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        raise _text_extent(parser, node, node.value)
    value = parser.index(node)
    if isinstance(value, Const) and value.value < 0:
        raise parser.error(node, f"an extent cannot be negative: {value.value}")
    return value


def _text_extent(parser: ExprParser, node: ast.expr, name: str) -> Error:
    """Returns the error for a string in the place of an extent."""
    help_ = f'declare it first: {name} = dim("{name}")' if name.isidentifier() else ""
    return parser.error(node, f'an extent is a dim or an integer, not the text "{name}"', help=help_)
