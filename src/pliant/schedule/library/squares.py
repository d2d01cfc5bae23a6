"""Sums of squares about a mean, the variances, are as near to the exact ones as those of peers that compute them in f64.

    squares[vi] = fma(x[vi, vk] - mean[vi], x[vi, vk] - mean[vi], squares[vi])    # in f32

->  d = f64(x[vi, vk]) - f64(mean[vi]);  squares[vi] = fma(d, d, squares[vi])     # in f64

In f32 the difference is rounded, and its square has twice that error. The errors of many terms cancel each other, those of few do not: up
to 600 terms the worst of some variances is more than 1.5 times as far off as one that is rounded once. So short sums are in f64 as a whole.
Long ones have their terms in f32, and in f64 their totals (`accumulate.py`) and more of the last additions than other sums.

Only variances that are results by themselves are meant. Where something is computed from them for each term, as in norms, that is rounded
several times after it, which hides the difference. (docs/design/0025-totals-in-f64.md)
"""

from __future__ import annotations

from ...loop.analysis.nests import accesses, allocation, base_facts, blocks
from ...loop.buffer import Load
from ...loop.stmt import Block, For, Func, Reduce, Stmt, map_children
from ...support.refusal import Refusal
from ...sym.expr import Expr, Mul, Sub, Var, all_of, free_vars, product
from ...sym.simplify import simplify
from ...target import Target
from ..plain_nest import plain_loops
from ..schedule import Schedule
from .accumulate import most_terms, widens
from .record import Version

SHORT = 1024  # terms along columns: f64 for each of them costs the more the more there are, and the errors of so many cancel
SHORT_ROW = 96  # along rows, where more additions of lanes in f64 do the rest
TERMS = "terms"  # the annotation of a block whose terms are computed in the dtype that it says
WIDE_HALVES = "wide_halves"  # the annotation of a block that says how many of the last additions of lanes are in f64
MORE_HALVES = 5  # 32 to 16 to … to 1: in f32 these round as much as 3,000 terms do


def widen_squares(s: Schedule, target: Target) -> None:
    """Compute the short sums of squares about a mean of a program in f64, and more of the long ones than of other sums."""
    for block in blocks(s.program.body):
        reduced = _squares_about_a_mean(s.program, block, target)
        if not reduced:
            continue
        if block.annotations.get(TERMS) == "f64" or most_terms(s.program, reduced) <= _short(block, reduced):
            s.annotate(block.name, TERMS, "f64")
            s.widen(block.name)
        else:
            s.annotate(block.name, WIDE_HALVES, MORE_HALVES)


def short_squares(version: Version, target: Target) -> Version | None:
    """A program for few terms, where their number is not known; the other sums are as in `version`."""
    func = version.func
    sums = {b: reduced for b in blocks(func.body) if (reduced := _squares_about_a_mean(func, b, target))}
    sums = {b: reduced for b, reduced in sums.items() if most_terms(func, reduced) > _short(b, reduced)}
    if not sums:
        return None
    few = [product(tuple(x.extent for x in reduced)) <= _short(b, reduced) for b, reduced in sums.items()]
    guard = simplify(all_of(version.guard, *few), base_facts(func))
    return Version(guard, func.with_(body=_annotated(func.body, {b.name for b in sums})))


def _squares_about_a_mean(func: Func, block: Block, target: Target) -> list[For]:
    """The loops of the sum, if a block sums squares of differences from something that is one number for each sum; else none."""
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
    """How many terms are few, along a row or along columns."""
    along_rows = any(not a.write and a.indices and reduced[-1].var in free_vars(a.over_loops()[-1]) for a in accesses(block))
    return SHORT_ROW if along_rows else SHORT


def _difference(e: Expr, reduced: set[Var]) -> bool:
    """Whether something that does not move with the sum is taken off something that does."""
    if not isinstance(e, Sub):
        return False
    x, mean = e.args
    return isinstance(mean, Load) and free_vars(mean).isdisjoint(reduced) and not free_vars(x).isdisjoint(reduced)


def _annotated(s: Stmt, names: set[str]) -> Stmt:
    s = map_children(s, lambda x: _annotated(x, names))
    return s.with_(annotations={**s.annotations, TERMS: "f64", "parts": ()}) if isinstance(s, Block) and s.name in names else s
