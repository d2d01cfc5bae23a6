"""Variances in f64: computes short sums of squared differences from a mean in f64, to match the precision of libraries that use f64.

    squares[vi] = fma(x[vi, vk] - mean[vi], x[vi, vk] - mean[vi], squares[vi])    # in f32

->  d = f64(x[vi, vk]) - f64(mean[vi]);  squares[vi] = fma(d, d, squares[vi])     # in f64

In f32 the difference is rounded, and its square has twice that error. The errors of many terms cancel, those of few terms do not: up to 120
terms the worst of some variances is more than 1.5 times as far off as one that is rounded once. So short sums are in f64 as a whole. Long
sums have terms in f32, and more of what follows than other sums in f64: the last lane additions of a row, all parts of 4 along columns.

This applies only to variances that are results themselves. A norm computes a value from the variance for each term, and the several
roundings after it hide the difference. (docs/design/0025-totals-in-f64.md)
"""

from __future__ import annotations

from ...loop.analysis.nest_shape import plain_loops
from ...loop.analysis.nests import accesses, allocation, base_facts, blocks, constant_extent
from ...loop.buffer import Load
from ...loop.stmt import Block, For, Func, Reduce, Stmt, map_children
from ...support.refusal import Refusal
from ...sym.conditions import all_of
from ...sym.expr import Expr, Mul, Sub, Var, free_vars, product
from ...sym.simplify import simplify
from ...target import Target
from ..schedule import Schedule
from .accumulate import Sizes, cuts_of, most_terms, widens
from .record import Version

SHORT = 120  # terms along columns: f64 for each term takes twice as long, and the rounding errors of more terms cancel
PART = Sizes(4, (), (), long=4, wide=True)  # of longer sums along columns
SHORT_ROW = 96  # terms along rows: longer rows add more of their lanes in f64 instead (MORE_HALVES)
TERMS = "terms"  # annotation of a block: the dtype in which its terms are computed
WIDE_HALVES = "wide_halves"  # annotation of a block: the number of its last lane additions that are in f64
MORE_HALVES = 5  # 32 to 16 to … to 1 lanes: in f32 these five additions round as much as 3,000 terms do


def widen_squares(s: Schedule, target: Target) -> None:
    """Compute short sums of squared differences in f64; let long ones do more of their last additions in f64, or sum smaller parts."""
    for block in blocks(s.program.body):
        reduced = _squares_about_a_mean(s.program, block, target)
        if not reduced:
            continue
        if block.annotations.get(TERMS) == "f64" or most_terms(s.program, reduced) <= _short(block, reduced):
            s.annotate(block.name, TERMS, "f64")
            s.widen(block.name)
        elif _along_rows(block, reduced):
            s.annotate(block.name, WIDE_HALVES, MORE_HALVES)
        elif block.annotations.get("parts") is None:
            cuts = cuts_of([constant_extent(s.program, x) for x in reduced], PART)
            s.annotate(block.name, "parts", tuple((c.at, c.size) for c in cuts))


def short_squares(version: Version, target: Target) -> Version | None:
    """Return a version of a program for few terms if their number is dynamic, else None; other sums stay as in `version`.

    In it, sums of squared differences are annotated so that their terms are in f64. Its guard includes that of `version`.
    """
    func = version.func
    sums = {b: reduced for b in blocks(func.body) if (reduced := _squares_about_a_mean(func, b, target))}
    sums = {b: reduced for b, reduced in sums.items() if most_terms(func, reduced) > _short(b, reduced)}
    if not sums:
        return None
    few = [product(tuple(x.extent for x in reduced)) <= _short(b, reduced) for b, reduced in sums.items()]
    guard = simplify(all_of(version.guard, *few), base_facts(func))
    return Version(guard, func.with_(body=_annotated(func.body, {b.name for b in sums})))


def _squares_about_a_mean(func: Func, block: Block, target: Target) -> list[For]:
    """Return the reduction loops if a block sums squared differences from a value that is constant for each sum; else [].

    It must sum f32 on a target with f64 into a temporary, and no block of the program may compute something for each term.
    """
    loops = plain_loops(func, block)
    if isinstance(loops, Refusal) or not widens(block, target) or any(i.kind == "O" for i in block.iters):
        return []
    body = block.body
    assert isinstance(body, Reduce)
    value = body.values[0]
    factors = value.args if isinstance(value, Mul) else body.values if body.combiner.name == "fma" else ()
    reduced = {i.var for i in block.iters if i.kind == "R"}
    if len(factors) != 2 or factors[0] is not factors[1] or not _difference(factors[0], reduced):
        return []
    spatial = sum(i.kind == "S" for i in block.iters)
    for_each_term = any(sum(i.kind == "S" for i in b.iters) > spatial for b in blocks(func.body))
    if for_each_term or allocation(func, body.targets[0].buffer) is None:
        return []
    return [loops[i.var] for i in block.iters if i.kind == "R"]


def _short(block: Block, reduced: list[For]) -> int:
    """Return the largest number of terms that counts as short: SHORT_ROW along a row, SHORT along columns."""
    return SHORT_ROW if _along_rows(block, reduced) else SHORT


def _along_rows(block: Block, reduced: list[For]) -> bool:
    """Return whether the innermost reduction loop runs along the last dim of what is summed."""
    return any(not a.write and a.indices and reduced[-1].var in free_vars(a.over_loops()[-1]) for a in accesses(block))


def _difference(e: Expr, reduced: set[Var]) -> bool:
    """True if `e` subtracts a value that is constant during the sum from one that is not."""
    if not isinstance(e, Sub):
        return False
    x, mean = e.args
    return isinstance(mean, Load) and free_vars(mean).isdisjoint(reduced) and not free_vars(x).isdisjoint(reduced)


def _annotated(s: Stmt, names: set[str]) -> Stmt:
    s = map_children(s, lambda x: _annotated(x, names))
    return s.with_(annotations={**s.annotations, TERMS: "f64", "parts": ()}) if isinstance(s, Block) and s.name in names else s
