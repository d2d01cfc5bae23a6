"""Tells which parts of a node deduction reproduces from its arguments, so that the printer writes only the others.

deduced_requires(node)           # the run-time conditions that building the node again would give it
follows_from_arguments(call)     # True if building the call again would give it the same dims
"""

from __future__ import annotations

from collections.abc import Sequence

from ..support.errors import Error
from .annotation import annotation_vars
from .deduce import Deduction, deduce_call, deduce_function, deduce_match
from .node import CallFunction, CallLoop, MatchCast, Node, Op, Require, Scalar, Value, node_args
from .op_table import TABLE


def deduced_requires(node: Node) -> Sequence[Require]:
    """Returns the run-time conditions that deduction gives for a node; none if the node has no conditions left."""
    if not node.requires:
        return ()  # a pass has proven the others: there is nothing to print
    d = Deduction("match_cast", node_args(node), span=node.span)
    match node:
        case Op():
            d.what = node.op
            TABLE[node.op].deduce(d, node.attrs)
        case CallLoop():
            d = _of_call(node)
            deduce_call(d, node.callee, None if follows_from_arguments(node) else node.dims)
        case CallFunction():
            d.what = node.function.name
            deduce_function(d, node.function)
        case MatchCast():
            target = node.outs[0].annotation
            deduce_match(d, target, annotation_vars(target) - set(node.defines))
    return d.requires


def follows_from_arguments(node: CallLoop) -> bool:
    """True if the dims of a call can be deduced from its arguments, and are what deduction gives."""
    try:
        _, dims = deduce_call(_of_call(node), node.callee)
    except Error:
        return False
    return len(dims) == len(node.dims) and all(a is b for a, b in zip(dims, node.dims, strict=True))


def _of_call(node: CallLoop) -> Deduction:
    """A `Deduction` for a call of a loop program; scalar arguments become host scalars."""
    params = [p for p in node.callee.params if p.role != "out"]
    args = (a if isinstance(a, Value) else Value(p.name, Scalar(a.dtype, a)) for p, a in zip(params, node.args, strict=True))
    return Deduction(node.callee.name, tuple(args), span=node.span)
