"""rfactor: splits a reduction into lanes, i.e. separate partial results for the iterations of a loop, combined at the end."""

from __future__ import annotations

from ...dtype import DType, i64
from ...loop.analysis.nests import base_facts, block_names, constant_extent, fed_by, loaded, loops_above
from ...loop.buffer import Buffer, Load, Scope
from ...loop.stmt import NAMED_COMBINERS, Alloc, Block, Combiner, For, Func, Iter, Reduce, Replacer, Seq, Stmt, Store, seq, zero
from ...sym.expr import Const, Expr, Var, free_vars, substitute
from ...sym.prove import prove
from ..cursor import Forward, marked_name
from ..errors import refuse
from ..invariants import legal
from ..tile import Tile, nest_of, rebound, spatial_facts, spatial_predicate, tile_of
from .cache_stages import check_scope, check_targets, insert, redirected
from .loops import reassociation
from .reduction import identity_of, shown_iters

# A user's combiner is a formula, so that its init is neutral is tested on random values and not proved.
TRIALS = 256  # random sequences of values
STEPS = 4  # values in each sequence


@legal
def rfactor(func: Func, block: Block, loop: For, at: For | None = None, scope: Scope = "stack") -> tuple[Func, Forward]:
    """Sum by lanes: the iterations of `loop` accumulate in partial sums of their own, `…_lanes`, which are summed at the end.

    `loop` must feed only R iterators and have a constant extent, or one in terms of dims if the scope is `workspace`. The lanes start anew
    in each iteration of `at`. The block that sums them is `…_sum`; it has the init of the original block. Reductions of tuples (argmax,
    online softmax, Welford) have lanes of all their targets, which start with the constants of the init. These must be neutral for the
    combiner, which is tested on random numbers. Raises a ScheduleError if these conditions do not hold.

        for i in range(n):
            for k in range(8):
                with block("w", "SR", i, k) as (vi, vk):
                    with init():
                        w[vi] = 0.0
                    w[vi] += a[vi, vk]

    -> `s.rfactor("w", k, i)`

        for i in range(n):
            w_lanes = alloc((1, 8), f32, scope="stack")
            for k in range(8):
                with block("w", "SS", i, k) as (vi, vk):
                    with init():
                        w_lanes[0, vk] = 0.0
                    w_lanes[0, vk] += a[vi, vk]
            for k in range(8):
                with block("w_sum", "SR", i, k) as (vi, vk):
                    with init():
                        w[vi] = 0.0
                    w[vi] += w_lanes[0, vk]
    """
    what = f"cannot factor the reduction of block `{block.name}`"
    check_scope(func, block, scope, at, what)
    s = block.body
    if not isinstance(s, Reduce) or block.init is None:
        hint = "do this before decompose_reduction" if isinstance(s, Reduce) else ""
        raise refuse(f"{what}: it is not one reduction with its init", func, (block, "this block"), help=hint)
    inner = check_targets(func, block, s.targets, at, "factor the reduction of")
    lanes = _lanes(func, loop, scope)
    if fed_by(block, loop) != {"R"} or loop not in inner or lanes is None:
        reason = "its extent is not a constant" if lanes is None else "it does not feed reduction iterators alone"
        raise refuse(f"{what} by loop `{loop.var.name}`: {reason}", func, (loop, f"extent {loop.extent}"), (block, shown_iters(block)))
    begun = _begun(func, block, s, what)
    over_loops = {i.var: i.value for i in block.iters}
    reducing = [x for x in inner if fed_by(block, x) - {"S"}]
    bound = rebound(func, block, "factor the reduction of")
    lane = bound.iters[loop.var]
    start = substitute(loop.start, bound.iters)
    if not free_vars(start).isdisjoint(x.var for x in loops_above(func, block)):
        raise refuse(f"{what}: the first index of its lanes depends on other loops", func, (loop, f"from {loop.start} on"))
    at_lane = lane if _is_zero(start) else lane - start
    tiles = [_tile(func, block, t, over_loops, inner) for t in s.targets]
    buffers = [
        Buffer(f"{t.buffer.name}_lanes", t.buffer.dtype, (*(Const(n, i64) for n in tile.extent), lanes), None, scope)
        for t, tile in zip(s.targets, tiles, strict=True)
    ]
    new = bound.block
    inits: list[Stmt] = []
    for t, tile, buffer, value in zip(s.targets, tiles, buffers, begun, strict=True):
        place = (*(substitute(e, bound.iters) for e in tile.offset), at_lane)
        new = redirected(new, t.buffer, buffer, place)
        inits.append(Store(buffer, place, value))
    new = new.with_(iters=tuple(Iter(i.var, "S", i.value) if i.var is lane else i for i in new.iters), init=seq(*inits))
    spatial_above = [x for x in loops_above(func, block) if x.var in bound.iters and x not in reducing]
    summing = Var(loop.var.name)
    iters = tuple(Iter(Var(f"v{x.var.name}"), "S", x.var) for x in spatial_above)
    last = Iter(Var(f"v{loop.var.name}"), "R", summing)
    where: dict[Var, Expr] = {x.var: i.var for x, i in zip(spatial_above, iters, strict=True)}
    results = [Load(t.buffer, tuple(substitute(substitute(e, over_loops), where) for e in t.indices)) for t in s.targets]
    partial = [Load(b, (*(substitute(e, where) for e in t.offset), last.var)) for b, t in zip(buffers, tiles, strict=True)]
    total = Block(
        marked_name(block.name, "_sum", block_names(func)),
        (*iters, last),
        Reduce(_of_results(s.combiner), tuple(results), tuple(partial)),
        Replacer({v: substitute(e, where) for v, e in over_loops.items()}).stmt(block.init),
        predicate=spatial_predicate(new, {**where, loop.var: last.var + substitute(loop.start, where)}),
        span=block.span,
    )
    nest, _ = nest_of([x for x in inner if x not in reducing], For(summing, Const(0, i64), lanes, "serial", total))
    return insert(func, block, new, inner, tuple(map(Alloc, buffers)), (nest,), reassociation(func, block))


def _tile(func: Func, block: Block, target: Load, over_loops: dict[Var, Expr], inner: list[For]) -> Tile:
    """Return the tile of a target that the `inner` loops touch while the loops around them stand still.

    Raises a ScheduleError unless the tile has a constant size. `over_loops` maps the block's iterators to their values over loops.
    """
    indices = tuple(substitute(e, over_loops) for e in target.indices)
    return tile_of(func, block, indices, inner, "factor the reduction of", spatial_facts(func, block, inner))


def _of_results(combiner: Combiner) -> Combiner:
    """Return the combiner of partial results: sums of products made by fma are combined by add."""
    return NAMED_COMBINERS["add"] if combiner.name == "fma" else combiner


def _begun(func: Func, block: Block, s: Reduce, what: str) -> list[Expr]:
    """Return the start value of a lane for each target; raise if the init is not neutral or not constant, or writes other elements."""
    stores = _inits(block)
    places = [(t.buffer, t.indices) for t in s.targets]
    if sorted(map(id, (x.buffer for x in stores))) != sorted(map(id, (b for b, _ in places))) or {
        (x.buffer, x.indices) for x in stores
    } != set(places):
        raise refuse(f"{what}: its init writes other places than its reduction", func, (block, "this block"))
    targets = {b for b, _ in places}
    if targets & loaded(*s.values, block.predicate, *(x.value for x in stores)):
        shown = ", ".join(f"`{b.name}`" for b in targets)
        raise refuse(f"{what}: what it adds depends on what it has so far", func, (block, f"reads {shown}"))
    if not s.combiner.left:
        return [identity_of(_of_results(s.combiner).name, s.targets[0])]
    value_of = {x.buffer: x.value for x in stores}
    begun = [value_of[t.buffer] for t in s.targets]
    if not all(isinstance(e, Const) for e in begun):
        raise refuse(f"{what}: its init is not made of constants", func, (block, ", ".join(map(str, begun))))
    changed = _changed_by(s.combiner, [e.value for e in begun if isinstance(e, Const)], [t.dtype for t in s.targets])
    if changed:
        raise refuse(
            f"{what}: each lane would begin with its init, which changes what the combiner has reduced so far",
            func,
            (block, f"begins with {', '.join(map(str, begun))}"),
            facts=[changed],
            help="begin with values that change nothing, as -inf does for a maximum",
        )
    return begun


def _inits(block: Block) -> list[Store]:
    """Return the stores of an init; [] if it contains anything else."""
    init = block.init
    body = init.body if isinstance(init, Seq) else (init,)
    stores = [x for x in body if isinstance(x, Store)]
    return stores if len(stores) == len(body) else []


def _changed_by(combiner: Combiner, init: list[int | float | bool], types: list[DType]) -> str:
    """Return an example of a state that combining with the init changes; "" if random trials find none.

    Lanes l1, l2, … that start with the init compute init + l1 + init + l2 …. Combiners are associative, so it is enough that the init
    changes no state to its left. States are reached from the init by finite values: argmax never gets from (-inf, -1) to (-inf, 3), for
    example.
    """
    import numpy as np

    from ...sym.semantics import evaluate

    rng = np.random.default_rng(0)

    def values(d: DType) -> np.ndarray:
        if not d.is_float:
            return rng.integers(max(int(d.min), -9), min(int(d.max), 9), TRIALS, endpoint=True).astype(d.numpy())
        return (rng.standard_normal(TRIALS) * 10.0 ** rng.integers(-2, 4, TRIALS)).astype(d.numpy())

    def combined(left: list[np.ndarray], right: list[np.ndarray]) -> list[np.ndarray]:
        env = {**dict(zip(combiner.left, left, strict=True)), **dict(zip(combiner.right, right, strict=True))}
        return [np.broadcast_to(np.asarray(evaluate(e, env)), TRIALS) for e in combiner.result]

    begin = [np.full(TRIALS, v, d.numpy()) for v, d in zip(init, types, strict=True)]
    state = begin
    for _ in range(STEPS):
        for old, new, d in zip(state, combined(state, begin), types, strict=True):
            same = np.isclose(old, new, rtol=1e-5, atol=1e-6, equal_nan=True) if d.is_float else old == new
            if not same.all():
                at = int(np.argmin(same))
                return f"{', '.join(str(x[at]) for x in state)} becomes {', '.join(str(x[at]) for x in combined(state, begin))}"
        state = combined(state, [values(d) for d in types])
    return ""


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


def _lanes(func: Func, loop: For, scope: Scope) -> Expr | None:
    """Return the number of partial sums that the iterations of a loop make; None if a buffer of that scope cannot have that size."""
    constant = constant_extent(func, loop)
    if constant is not None:
        return Const(constant, i64)
    known = free_vars(loop.stop) <= set(func.symbols) and _is_zero(loop.start) and prove(zero() <= loop.stop, base_facts(func))
    return loop.stop if known and scope == "workspace" else None
