"""Chat templates as trees of plain data, for renderers that have no Jinja: `codegen/web/template.js` renders them without evaluating text.

    template_tree("Hi {{ name }}!")     # [["out", [["const", "Hi "], ["name", "name"], ["const", "!"]]]]

A node is a list: its kind, then its parts. What a tree has no kind for (macros, tools as JSON) is the node `unknown`, whose rendering is an
error; most templates have such parts only for tools, which pages do not offer.
"""

from __future__ import annotations

from typing import Any

Tree = list[Any]


def template_tree(source: str) -> Tree:
    """Returns the tree of a Jinja template, a list of statements; raises jinja2's TemplateSyntaxError if its syntax is not valid."""
    from jinja2 import Environment

    # It parses as the sandbox does, without the sandbox's own nodes. Nothing is run here.
    syntax = Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    return _statements(syntax.parse(source).body)


def _statements(nodes: Any) -> Tree:
    """Returns the trees of statements, in order."""
    return [_statement(node) for node in nodes]


def _statement(node: Any) -> Tree:
    """Returns the tree of a statement: `out`, `if`, `for` or `set`; for one of another kind, an output of the node `unknown`."""
    match type(node).__name__:
        case "Output":
            return ["out", [_value(v) for v in node.nodes]]
        case "If":
            cases = [node, *node.elif_]
            return ["if", [[_value(c.test), _statements(c.body)] for c in cases], _statements(node.else_)]
        case "For" if not node.recursive:
            test = _value(node.test) if node.test is not None else None
            return ["for", _target(node.target), _value(node.iter), _statements(node.body), _statements(node.else_), test]
        case "Assign":
            return ["set", _target(node.target), _value(node.node)]
        case kind:
            return ["out", [["unknown", f"`{kind.lower()}`"]]]


def _target(node: Any) -> Tree:
    """Returns what is assigned to: a name, a field of a namespace, or several of them."""
    match type(node).__name__:
        case "NSRef":
            return ["field", node.name, node.attr]
        case "Name":
            return ["name", node.name]
        case _:
            return ["several", [_target(item) for item in node.items]]


_BINARY = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "FloorDiv": "floordiv", "Mod": "mod"}
_LOGICAL = {"And": "and", "Or": "or"}


def _value(node: Any) -> Tree:
    """Returns the tree of an expression: its kind, then its parts; `unknown` for one that a tree has no kind for."""
    kind = type(node).__name__
    if kind in _BINARY:
        return ["binary", _BINARY[kind], _value(node.left), _value(node.right)]
    if kind in _LOGICAL:
        return [_LOGICAL[kind], _value(node.left), _value(node.right)]
    match kind:
        case "TemplateData":
            return ["const", node.data]
        case "Const" if node.value is None or isinstance(node.value, bool | int | float | str):
            return ["const", node.value]
        case "Name":
            return ["name", node.name]
        case "Getattr":
            return ["field", _value(node.node), node.attr]
        case "Getitem" if type(node.arg).__name__ == "Slice":
            bounds = (node.arg.start, node.arg.stop, node.arg.step)
            return ["slice", _value(node.node), *(None if b is None else _value(b) for b in bounds)]
        case "Getitem":
            return ["item", _value(node.node), _value(node.arg)]
        case "Not" | "Neg":
            return [kind.lower(), _value(node.node)]
        case "Concat":
            return ["concat", [_value(v) for v in node.nodes]]
        case "CondExpr":
            return ["choice", _value(node.test), _value(node.expr1), None if node.expr2 is None else _value(node.expr2)]
        case "Compare":
            return ["compare", _value(node.expr), [[o.op, _value(o.expr)] for o in node.ops]]
        case "List" | "Tuple":
            return ["list", [_value(v) for v in node.items]]
        case "Dict":
            return ["dict", [[_value(p.key), _value(p.value)] for p in node.items]]
    return _call(node, kind)


def _call(node: Any, kind: str) -> Tree:
    """Returns the tree of a call, or of a filter or test without named arguments; `unknown` for everything else, also for `*args`."""
    if kind in ("Filter", "Test") and node.node is not None and not node.kwargs and node.dyn_args is None and node.dyn_kwargs is None:
        return [kind.lower(), node.name, _value(node.node), [_value(a) for a in node.args]]
    if kind == "Call" and node.dyn_args is None and node.dyn_kwargs is None:
        return ["call", _value(node.node), [_value(a) for a in node.args], [[k.key, _value(k.value)] for k in node.kwargs]]
    return ["unknown", f"`{getattr(node, 'name', None) or kind.lower()}`"]
