"""Control flow: If, Loop, Scan.

A condition that is known at import time selects its branch there. A loop with a constant trip count is unrolled if its loop-carried
values change shape or are sequences.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dtype import i64
from ....graph.annotation import Fit, subsumes
from ....graph.node import Tensor, Value
from ....support.errors import ModelFileError, ShapeError
from ....sym.expr import Const, Expr, Max, Min, Select, const, product
from ....sym.simplify import simplify
from ..emit import ops
from ..items import Item, Known, Maybe, Sequence, as_expr, numbers
from ..loops import Loop, as_tensor, wide
from ..node_context import NeededError, NodeContext
from ..registry import rule

UNROLLED = 1024  # the most iterations that are unrolled: each adds all nodes of the body to the program
MOST_ROUNDS = 1 << 20  # the most iterations of a loop that collects rows if the trip count is data-dependent
MOST_ROWS = 1 << 30  # the most bytes of rows then, because the memory plan needs an upper bound


@rule("If")
def if_(site: NodeContext) -> Any:
    """Imports If: runs one of two subgraphs; results with different dims are merged if the condition is an expression over dims.

    A condition known at import time selects one subgraph. If ranks differ under such an expression, only the first subgraph is imported,
    with a run-time check. Raises UnsupportedError if results differ otherwise.
    """
    condition = site.item(0)
    branches = [site.graph("then_branch"), site.graph("else_branch")]
    counts = [len(b.output) for b in branches]
    site.require(counts[0] == counts[1] == len(site.node.output), f"the branches have {counts[0]} and {counts[1]} results")
    if isinstance(condition, Known) and not condition.symbolic:
        site.require(condition.array.size == 1, "the condition has more than one element")
        return site.importer.body(branches[0] if condition.array.reshape(-1)[0] else branches[1], site.scope, {})
    importer, builder = site.importer, site.importer.builder
    value = site.x(0)
    value = ops.reshape(value, ()) if isinstance(value.annotation, Tensor) and value.annotation.shape else value
    arms: list[tuple[Any, Any, list[Value]]] = []
    for branch in branches:
        importer.open()
        items = _imported(site, branch)
        if any(isinstance(i, Sequence | Maybe) for i in items):
            error = importer.needed(site, 0)
            raise error if error.inputs else site.unsupported("branches that give sequences or optionals are not supported")
        results = [as_tensor(importer.value(i, site)) for i in items]
        arms.append((builder.pause(), importer.leave(), results))
    chooses = as_expr(condition.array.reshape(-1)[0], condition.dtype) if isinstance(condition, Known) else None
    if chooses is not None and any(len(a.tensor.shape) != len(b.tensor.shape) for a, b in zip(arms[0][2], arms[1][2], strict=True)):
        return _first_only(site, chooses, branches[0])
    common = [_common(site, a, b, chooses) for a, b in zip(arms[0][2], arms[1][2], strict=True)]
    bodies = []
    for frame, literals, results in arms:
        builder.resume(frame)
        importer.enter(literals)
        final = [_under(builder, r, c) for r, c in zip(results, common, strict=True)]
        bodies.append(importer.close(final))
    return list(builder.if_(value, bodies[0], bodies[1]))


def _imported(site: NodeContext, branch: Any) -> Any:
    """Imports one of two branches of which a run takes one.

    For inputs of these dims, the one that is not taken may have no meaning (the branch for another sampling rate). Then it is enough to
    know the inputs that decide: raises NeededError for them.
    """
    importer = site.importer
    try:
        return importer.body(branch, site.scope, {})
    except NeededError:
        raise
    except (ModelFileError, ShapeError) as error:
        needed = importer.needed(site, 0)
        if importer.shapes and needed.inputs:
            raise needed from error
        raise


def _first_only(site: NodeContext, chooses: Expr, branch: Any) -> Any:
    """Imports only the first of two branches whose results have different ranks, with a run-time check that it is taken.

    Exporters write such branches for a squeeze, and the nodes after them assume the rank of the first.
    """
    site.check(chooses, "it is supported where its condition holds")
    return site.importer.body(branch, site.scope, {})


def _common(site: NodeContext, a: Value, b: Value, chooses: Expr | None) -> Tensor:
    """Returns the common annotation of a result of both branches; a dim that differs becomes a select on the condition `chooses`.

    Raises UnsupportedError if dtypes or ranks differ, or dims without such a condition.
    """
    x, y = a.tensor, b.tensor
    if x.dtype is not y.dtype or len(x.shape) != len(y.shape):
        facts = [f"the first branch gives {x}", f"the second {y}"]
        raise site.unsupported("branches whose results have different ranks or data types are not supported", facts=facts)
    if subsumes(x, y).fit is Fit.HOLDS:
        return Tensor(x.dtype, x.shape)
    if chooses is None:
        raise site.unsupported("branches whose results have different shapes are not supported", facts=[f"{x} and {y}"])
    return Tensor(x.dtype, tuple(n if n is m else simplify(Select(chooses, n, m)) for n, m in zip(x.shape, y.shape, strict=True)))


def _under(builder: Any, value: Value, annotation: Tensor) -> Any:
    """Returns `value` with the annotation, by a match_cast unless it provably has it."""
    return value if subsumes(annotation, value.annotation).fit is Fit.HOLDS else builder.match_cast(value, annotation)


@rule("Loop")
def loop(site: NodeContext) -> Any:
    """Imports Loop: runs a subgraph up to a trip count and while a condition holds; compiled as a loop, or unrolled if that is impossible.

    Raises UnsupportedError if neither is possible.
    """
    body = site.graph("body")
    carried = [site.item(k) for k in range(2, len(site.items))]
    site.require(len(body.input) == len(carried) + 2, f"the body has {len(body.input)} inputs, {len(carried) + 2} are expected")
    site.require(len(body.output) >= len(carried) + 1, f"the body has {len(body.output)} results")
    count, keep = _rounds(site), site.items[1] if site.has(1) else None
    known_keep = keep is None or (isinstance(keep, Known) and not keep.symbolic)
    number = count.value if isinstance(count, Const) else None
    if any(isinstance(c, Sequence | Maybe) for c in carried):
        _check_known(site, "a loop over sequences or optionals")
        return _unrolled(site, body, carried, number, keep)
    frames = site.importer.mark()
    try:
        return _compiled(site, body, carried, count, keep)
    except ShapeError as error:
        _check_known(site, f"a loop that cannot be compiled ({error.what})")
        if number is None or number > UNROLLED or not known_keep:
            raise site.unsupported(f"a loop that cannot be compiled: {error.what}", facts=error.facts) from None
        site.importer.back_to(frames)
        return _unrolled(site, body, carried, number, keep)


def _check_known(site: NodeContext, what: str) -> None:
    """Raises unless trip count and condition are known at import time, as unrolling needs: NeededError if fixing an input would help."""
    for k in (0, 1):
        if site.has(k) and not (isinstance(site.item(k), Known) and not site.items[k].symbolic):
            error = site.importer.needed(site, k)
            raise error if error.inputs else site.unsupported(f"{what} whose rounds are not known is not supported")


def _rounds(site: NodeContext) -> Any:
    """Returns the maximal trip count of a Loop: an expression, a value, or None for no limit."""
    if not site.has(0):
        return None
    item = site.item(0)
    if isinstance(item, Known):
        site.require(item.array.size == 1, f"{item.array.size} numbers of rounds")
        return simplify(Max(as_expr(item.array.reshape(-1)[0], i64), const(0)))
    return wide(site, site.x(0))


def _unrolled(site: NodeContext, body: Any, carried: list[Item], number: int | None, keep: Any) -> list[Item]:
    """Imports the body once per iteration; returns the final states and stacked rows. Trip count and condition must be known.

    Raises UnsupportedError for more than UNROLLED iterations.
    """
    going = True if keep is None else bool(keep.array.reshape(-1)[0])
    scans: list[list[Value]] = [[] for _ in range(len(body.output) - len(carried) - 1)]
    names, done = [i.name for i in body.input], 0
    while going and (number is None or done < number):
        if done >= UNROLLED:
            raise site.unsupported(f"a loop of more than {UNROLLED} rounds that cannot be compiled as one is not supported")
        inputs = [numbers(np.asarray(done, np.int64)), numbers(np.asarray(going)), *carried]
        results = site.importer.body(body, site.scope, dict(zip(names, inputs, strict=True)))
        after = results[0]
        if not isinstance(after, Known) or after.symbolic:
            raise site.unsupported("a loop that changes shapes and ends by what it computes is not supported")
        going, carried = bool(after.array.reshape(-1)[0]), results[1 : 1 + len(carried)]
        for scan, row in zip(scans, results[1 + len(carried) :], strict=True):
            scan.append(site.value_of(row))
        done += 1
    if scans and not done:
        raise site.unsupported("a loop of no rounds has results of unknown shape")
    return [*carried, *(ops.stack(scan, 0) for scan in scans)]


def _compiled(site: NodeContext, body: Any, carried: list[Item], count: Any, keep: Any) -> list[Any]:
    """Emits the loop as a `While`. If it collects rows and its trip count is data-dependent, it runs twice: the first run counts
    iterations, which gives the size of the result."""
    rows = len(body.output) > len(carried) + 1
    if not rows or (isinstance(count, Expr) and not (isinstance(count, Const) and count.value > MOST_ROUNDS)):
        return _rounds_of(site, body, carried, count, keep)
    done = _rounds_of(site, body, carried, count, keep, counted=True)[0]
    capacity = simplify(Max(const(MOST_ROWS) // _row_bytes(site, body, carried, keep), const(1)))
    number = ops.bind_dim(done, most=simplify(Min(capacity, const(MOST_ROUNDS)))).annotation.value
    return _rounds_of(site, body, carried, number, None if keep is None or _true(keep) else keep, exact=True)


def _row_bytes(site: NodeContext, body: Any, carried: list[Item], keep: Any) -> Expr:
    """The size in bytes of the largest row that an iteration collects; imports the body once and discards it."""
    importer, mark = site.importer, site.importer.mark()
    importer.open((), loop=True)
    try:
        inputs = [numbers(np.asarray(0, np.int64)), numbers(np.asarray(True)), *carried]
        results = importer.body(body, site.scope, dict(zip([i.name for i in body.input], inputs, strict=True)))
        shapes = [as_tensor(importer.value(r, site)).tensor for r in results[len(carried) + 1 :]]
    finally:
        importer.back_to(mark)
    largest: Expr = const(1)
    for t in shapes:
        largest = Max(largest, product((const(t.dtype.itemsize), *t.shape)))
    return simplify(largest)


def _rounds_of(
    site: NodeContext, body: Any, carried: list[Item], count: Any, keep: Any, counted: bool = False, exact: bool = False
) -> list[Any]:
    """Emits one loop; returns its final states and collected rows, or with `counted` its trip count only.

    `exact` says that the loop runs exactly `count` times, so that the rows need no trimming.
    """
    importer = site.importer
    init = [as_tensor(importer.value(c, site)) for c in carried]
    start = as_tensor(importer.value(keep if keep is not None else numbers(np.asarray(True)), site))
    start = ops.reshape(start, ()) if start.tensor.shape else start
    round_ = Loop(site)
    with round_.body() as number:
        inner = [round_.carry(v) for v in (start, *init)]
        names = [i.name for i in body.input]
        results = importer.body(body, site.scope, dict(zip(names, [number, *inner], strict=True)))
        values = [as_tensor(importer.value(r, site)) for r in results]
        values[0] = ops.reshape(values[0], ()) if values[0].tensor.shape else values[0]
        for k, v in enumerate(values[: len(inner)]):
            round_.set(k + 1, v)
        scans = [] if counted else [round_.collect(row, number, count) for row in values[len(inner) :]]
    always = exact or (isinstance(results[0], Known) and bool(results[0].array.all()) and (keep is None or _true(keep)))
    outs = round_.finish(lambda at: _goes_on(at, count))
    if counted:
        return [outs[0]]
    rows = [outs[k] for k in scans]
    if not always and rows:
        done = ops.bind_dim(outs[0], most=count)
        rows = [ops.prefix(r, done) for r in rows]
    return [*outs[2 : 2 + len(init)], *rows]


def _true(keep: Any) -> bool:
    """True if the condition is known and true."""
    return isinstance(keep, Known) and not keep.symbolic and bool(keep.array.all())


def _goes_on(at: list[Value], count: Any) -> Any:
    """Returns the loop condition of a `While` from the iteration number, the condition and the states in `at`."""
    return at[1] if count is None else ops.logical_and(ops.less(at[0], count), at[1])


@rule("Scan")
def scan(site: NodeContext) -> Any:
    """Imports Scan: runs a subgraph for each row of the scanned tensors, with loop-carried states."""
    if site.version < 9:
        return _scan_of_batches(site)
    body, number = site.graph("body"), site.integer("num_scan_inputs", 0)
    states = len(site.items) - number
    outputs = len(body.output) - states
    site.require(1 <= number <= len(site.items) == len(body.input) and outputs >= 0, f"{number} tensors are scanned, of {len(site.items)}")
    axes = [site.normal(a, site.rank(states + k)) for k, a in enumerate(_list(site, "scan_input_axes", number))]
    reverse = _list(site, "scan_input_directions", number)
    count = site.tensor(states).shape[axes[0]]
    init = [as_tensor(site.x(k)) for k in range(states)]
    sources = [site.x(states + k) for k in range(number)]
    results = _scanned(site, body, init, sources, axes, reverse, count)
    return [*results[:states], *_arranged(site, results[states:])]


def _scanned(
    site: NodeContext, body: Any, init: list[Any], sources: list[Any], axes: list[int], reverse: list[int], count: Any
) -> list[Any]:
    """Emits the loop of a scan; returns the final states and the collected rows, stacked along axis 0."""
    importer, loop_, states = site.importer, Loop(site), len(init)
    with loop_.body() as at:
        inner = [loop_.carry(v) for v in init]
        places = [ops.sub(ops.sub(count, 1), at) if back else at for back in reverse]
        rows = [ops.take(x, p, a) for x, p, a in zip(sources, places, axes, strict=True)]
        results = importer.body(body, site.scope, dict(zip([i.name for i in body.input], [*inner, *rows], strict=True)))
        values = [as_tensor(importer.value(r, site)) for r in results]
        for k in range(states):
            loop_.set(k + 1, values[k])
        collected = [loop_.collect(row, at, count) for row in values[states:]]
    outs = loop_.finish(lambda now: ops.less(now[0], count))
    return [*outs[1 : 1 + states], *(outs[k] for k in collected)]


def _scan_of_batches(site: NodeContext) -> Any:
    """Imports the Scan of opset 8, which scans each batch element separately along axis 1.

    Raises NeededError unless the batch size is known, UnsupportedError for lengths of sequences.
    """
    if site.has(0):
        raise site.unsupported("lengths of sequences are not supported")
    body, number = site.graph("body"), site.integer("num_scan_inputs", 0)
    states = len(site.items) - 1 - number
    site.require(number >= 1 and states >= 0 and len(body.input) == states + number, f"{number} tensors are scanned")
    reverse = _list(site, "directions", number)
    batches, rounds = site.tensor(1 + states).shape[:2]
    size = batches.value if isinstance(batches, Const) else None
    if size is None or not 0 < size <= UNROLLED:
        raise site.needed_dim(f"a batch of {batches} elements: its size must be known, and at most {UNROLLED}")
    scanned = []
    for k in range(size):
        inputs = [ops.squeeze(ops.slice(site.x(1 + j), 0, k, k + 1), 0) for j in range(states + number)]
        scanned.append(_scanned(site, body, inputs[:states], inputs[states:], [0] * number, reverse, rounds))
    return [ops.stack(list(parts), 0) for parts in zip(*scanned, strict=True)]


def _list(site: NodeContext, name: str, length: int) -> list[int]:
    """Returns an attribute with one integer per tensor; all 0 by default."""
    integers = site.ints(name, None) or [0] * length
    site.require(len(integers) == length, f'attribute "{name}" has {len(integers)} numbers, {length} are expected')
    return integers


def _arranged(site: NodeContext, rows: list[Any]) -> list[Any]:
    """Returns the rows that a Scan collected, with the direction and axis that the scan_output attributes ask for."""
    axes, reverse = _list(site, "scan_output_axes", len(rows)), _list(site, "scan_output_directions", len(rows))
    arranged = []
    for x, axis, back in zip(rows, axes, reverse, strict=True):
        rank = len(x.tensor.shape)
        at = site.normal(axis, rank)
        x = ops.flip(x, 0) if back else x
        order = [*range(1, at + 1), 0, *range(at + 1, rank)]
        arranged.append(ops.permute(x, order) if at else x)
    return arranged
