"""Default rule for recurrences and scatters: blocks with ordered iterators, whose steps run one after the other.

    for t, j: y[t, j] = f(y[t - 1, j], x[t, j])     for c in parallel(n // 256): for t: for j in vector(256): …   then the rest
    for t, j: y[at[t], j] += x[t, j]                the same

The columns of such a block are independent, so neighboring columns are vector lanes, and threads share chunks of columns. A chunk runs
through all steps before the next chunk starts: the values of the previous step are still in registers or in the L1 cache. If there are
other independent loops, threads share those instead.
"""

from __future__ import annotations

from ...loop.analysis.block_kind import along
from ...loop.analysis.nests import constant_extent, find_block, has_block
from ...loop.buffer import Load
from ...loop.stmt import Block, Func, Store
from ...support.choices import worth
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...sym.walk import walk
from ...target import Target
from ..decisions import Decide
from ..schedule import Schedule
from .parallelize import share
from .record import Rule, required_loops

VECTORS = (1, 2, 4, 8, 16, 32, 64)  # choices of the number of vectors in a chunk of columns
# Default number of vectors, and its reason. Measured at f32 with 512-bit vectors: an exponential average over 50 steps of 20,000 columns
# takes 0.39 ms with 1 vector, 0.40 with 4, 0.29 with 16; adding 2,000 rows of 4,096 at random places takes 4.3 ms with 1, 1.8 with 16,
# 1.5 with 64.
STEPPED = (16, "enough vectors to hide the latency of a step, few enough to stay in the L1 cache from step to step")
SCATTERED = (64, "long pieces of rows: the address of the next row is data, so hardware prefetches only within a row")


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A record of the iterators of a recurrence by name: the ordered steps, the independent rows, and the contiguous column."""

    steps: tuple[str, ...]
    rows: tuple[str, ...]  # independent, but not contiguous in memory
    column: str
    bits: int  # of an element
    scatters: bool  # the stored rows are read from data (scatter)


def recurrence(func: Func, block: Block, target: Target) -> Recurrence | Refusal:
    """Match one store of ordered steps over independent columns; return its iterator roles, or why the block is none.

    The column is the S iterator along the rows of what is stored.
    """
    kinds = {kind: tuple(i.var for i in block.iters if i.kind == kind) for kind in "SRO"}
    store = block.body
    if not kinds["O"] or kinds["R"] or not isinstance(store, Store) or block.init is not None:
        return Refusal(f"block `{block.name}` is not one store with an ordered iterator")
    column = next((v for v in kinds["S"] if along(Load(store.buffer, store.indices), v)), None)
    if column is None:
        return Refusal(f"no S iterator of block `{block.name}` goes along the rows of what it stores")
    rows = tuple(v.name for v in kinds["S"] if v is not column)
    scatters = any(isinstance(e, Load) for index in store.indices for e in walk(index))
    return Recurrence(tuple(v.name for v in kinds["O"]), rows, column.name, store.buffer.dtype.bits, scatters)


def schedule_recurrence(s: Schedule, roles: Recurrence, decide: Decide) -> str:
    """Make columns vector lanes, run all steps of a chunk of columns, and parallelize chunks or rows; return text about it."""
    name = decide.block
    required_loops(s.program, find_block(s.program, name))
    rows, steps = ([s.loop(name, v) for v in which] for which in (roles.rows, roles.steps))
    column = s.loop(name, roles.column)
    lanes = decide.target.vector_bits // max(roles.bits, 8)
    default, why = SCATTERED if roles.scatters else STEPPED
    width = decide("columns", [n * lanes for n in VECTORS], default * lanes, why=why)
    extent = constant_extent(s.program, column.loop)
    if extent is not None and worth(extent <= width):
        s.reorder(*rows, *steps, column)
        s.vectorize(column)
        share(s, rows)
        return f"recurrence: `{name}` with vectors along `{roles.column}`"
    s.reorder(*rows, column, *steps)
    chunk, inner = s.split(column, width, tail="cut")
    s.reorder(*steps, inner)
    s.vectorize(inner)
    rest = f"{name}_rest"
    if has_block(s.program, rest):
        last = s.loop(rest, roles.column)
        s.reorder(*(s.loop(rest, v) for v in roles.steps), last)
        s.vectorize(last)
    if rows:
        share(s, rows)
    else:
        s.parallel(chunk)
    return f"recurrence: `{name}` in chunks of {width} columns"


RECURRENCES = Rule("recurrence", "recurrences", recurrence, schedule_recurrence)
