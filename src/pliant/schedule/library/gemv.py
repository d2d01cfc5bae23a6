"""Default rule for GEMV with an unpacked matrix, one row times a matrix: c[j] += a[k] * b[k, j].

    for wide panel of columns (parallel):
        tile of c on the stack = 0
        for eight rows of b: for each vector of columns: for k unrolled: tile[v, :] = fma(a[k], b[k, v, :], tile[v, :])
        c = epilogue(tile)

Every element of b is used once, so memory bandwidth decides. The rule reads long pieces of a few rows, in the order of memory. A narrow
panel of all rows would touch a new page (and TLB entry) with each row. The sum over k runs in order, a long one in parts (`accumulate.py`).
"""

from __future__ import annotations

from ...dtype import i64
from ...loop.analysis.block_kind import Matmul, matmul_of
from ...loop.analysis.nest_shape import alone, plain_loops
from ...loop.analysis.nests import find_block, writers
from ...loop.stmt import Block, For, Func, Reduce
from ...support.refusal import Refusal
from ...sym.expr import Const
from ...target import Target
from ..decisions import Decide
from ..schedule import LoopHandle, Schedule
from .accumulate import PRODUCTS, Loops, Sizes, Summing, begin, cut, lanes, with_parts
from .epilogue import with_epilogue
from .matmul import FEW_PANELS, TiledProduct, TileSize, wide_load
from .record import NotChosen, Rule

WIDEST = 2**12  # bytes of a row in a panel by default: one page, so that each row of a panel touches at most two
ONE = Const(1, i64)
TOGETHER = 8  # default of `rows_together`: rows of the matrix added to a vector of sums before it is stored, which saves 7 of 8 stores
FEWEST = 512  # columns from which on `gemv` is the default: with fewer, FEW_PANELS panels of f32 read pieces below 512 bytes


def one_row_of(func: Func, block: Block, target: Target) -> Matmul | Refusal:
    """Match one row times an unpacked matrix of the result's dtype, with rows of a constant length of at least one vector.

    Returns its iterator roles, or why the block is none.
    """
    roles, loops = matmul_of(block), plain_loops(func, block)
    if isinstance(roles, Refusal) or isinstance(loops, Refusal):
        return roles if isinstance(roles, Refusal) else Refusal("its loops are not plain")
    none = Refusal(f"block `{block.name}` is not one row times a plain matrix with long rows")
    if roles.pack or roles.batch or len(roles.reduced) != 1:
        return none
    extents = {v.name: x.extent for v, x in loops.items()}
    rows, columns, wide = extents.get(roles.row or "", ONE), extents[roles.column], wide_load(block, roles)
    assert isinstance(block.body, Reduce)
    lanes = max(1, target.vector_bits // block.body.targets[0].dtype.bits)
    if rows is not ONE or not isinstance(columns, Const) or columns.value < lanes or wide is None:
        return none
    return roles if wide.buffer.dtype is block.body.targets[0].dtype and not writers(func, wide.buffer) else none


def schedule_one_row(s: Schedule, roles: Matmul, decide: Decide) -> str:
    """Schedule a GEMV that reads the matrix in memory order, with its elementwise consumers in the write-back (epilogue).

    Return text about it. Raises NotChosen if the decision `gemv` is False, which is the default below FEWEST columns.
    """
    block = find_block(s.program, decide.block)
    loops = plain_loops(s.program, block)
    assert not isinstance(loops, Refusal)
    columns = next(x.extent for v, x in loops.items() if v.name == roles.column)
    many = isinstance(columns, Const) and columns.value >= FEWEST
    if not decide("gemv", (False, True), many, reorders=True, why=f"{FEWEST} columns or more: it reads the matrix in memory order"):
        raise NotChosen
    rule = _Rule(s, roles, {v.name: x for v, x in loops.items()}, decide)
    return with_epilogue(s, block, rule.apply)


class _Rule(TiledProduct):
    """One application of the GEMV rule to a block."""

    sums = "on the stack"

    def __init__(self, s: Schedule, roles: Matmul, loops: dict[str, For], decide: Decide) -> None:
        super().__init__(s, roles, loops, decide, copy=False)
        why = f"rows that are added to a vector of sums before it is stored; parts of a sum are about {PRODUCTS.part} rows"
        self.together = decide("rows_together", (2, 4, 8, 16), TOGETHER, reorders=True, why=why)

    def choose_summing(self, block: Block) -> Summing:
        """Return the lengths of partial sums of products; the sums are on the stack, and `tile_at` counts steps of several rows."""
        return Summing(PRODUCTS)

    def choose_tile(self) -> TileSize:
        """Decide the panel width: by default at most a page of a row, and narrow enough that there are FEW_PANELS panels."""
        lanes = max(1, self.target.vector_bits // self.dtype.bits)
        width = min(WIDEST * 8 // self.dtype.bits, (self.columns or 0) // FEW_PANELS)
        best = max(1, width // lanes)
        most = (self.columns or 0) // lanes
        widths = sorted({best, *(n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n <= most)})
        vectors = self.decide("panel", widths, best, why=f"at most {WIDEST} bytes of a row, and {FEW_PANELS} panels")
        return TileSize(1, vectors, lanes)

    def _parts(self) -> Sizes:
        """Return the lengths of the partial sums of a GEMV, in steps of `rows_together` rows of the weights."""
        return Sizes(PRODUCTS.part // self.together, PRODUCTS.groups, PRODUCTS.rows, PRODUCTS.long // self.together)

    def tile_at(self, name: str, at: LoopHandle, row: LoopHandle | None) -> None:
        """Add several rows of the matrix at a time to the sums; the loops inside `at` are (row,) depth, vectors, lanes."""
        s = self.s
        *_, depth, vector, lane = s.loops(name)
        if row is not None:
            s.unroll(row)
        written = s.cache_write(name, at, scope="stack")
        *_, last = [h for h in s.loops(written) if h.loop in alone(s.program, written.block)]
        lanes(s, last)
        loops = cut(s, name, [depth], self.together, self._parts())
        *steps, each = loops.loops
        parts = with_parts(s, name, Loops(tuple(steps), loops.parts), "stack")
        s.reorder(vector, each, lane)
        s.unroll(each)
        for h in (lane, *(s.loops(p.total)[-1] for p in parts)):
            lanes(s, h)
        begin(s, name, steps[0], parts)


ONE_ROW = Rule("one row", "products", one_row_of, schedule_one_row)
