"""LLVM code generation for vector loops: iterations become lanes.

A constant extent of up to 64 is one group of that many lanes (a power of two, else several groups), which LLVM splits over
registers. Other loops are strip-mined by the lanes of one register. The remainder is one masked group (predication) if the machine
has masked loads and stores of the elements, else a scalar tail loop:

    for j in vector(n):                     for j0 in 0, 8, … while j0 + 8 <= n:  y[j0 : j0+8] = f(x[j0 : j0+8])
        y[j] = f(x[j])             ->       y[j0 : n] = f(x[j0 : n])             (masked)

Every vector loop that comes here is legal to vectorize (`loop/passes/settle_lanes.py`).
"""

from __future__ import annotations

from ..dtype import i32, i64
from ..loop.analysis.lanes import Access, loop_body, slope
from ..loop.buffer import loaded_dtype
from ..loop.stmt import For
from ..sym.expr import Const, Eq, FloorMod, Var
from ..sym.poly import Poly
from .llvm_address import Lanes
from .llvm_stmt import Statements
from .llvm_types import Val

MAX_LANES = 64  # LLVM splits a group over registers, so code grows with its lanes; longer loops are strip-mined


class VectorLoops(Statements):
    """Emits vector loops: groups of lanes, and a masked or scalar remainder."""

    def vector_loop(self, s: For) -> None:
        constant = self.extent_of(s)
        if constant is not None and (constant[1] <= MAX_LANES or any(a.buffer.scope == "register" for a in loop_body(s).laned)):
            self._groups(s, *constant)
            return
        widest = max(8 * loaded_dtype(a.buffer.dtype).itemsize for a in loop_body(s).laned)
        self._strips(s, self.target.vector_bits // widest, self._masks(s))

    # Choice of lanes and masks.

    def _slope(self, access: Access, s: For) -> Poly | None:
        """Return the stride between the elements of neighboring lanes, or None if it is not uniform."""
        indices, buffer = access.indices, access.buffer
        place = self.poly(indices[-1]) if buffer.scope == "register" else self.flat(indices, buffer.element_strides())
        return slope(place, s.var, loop_body(s).varying)

    def _masks(self, s: For) -> bool:
        """True if a masked group is cheap: AVX2 has masked vectors of 4- and 8-byte elements, AVX-512 masked gathers and scatters too."""
        features = self.target.features
        if "avx2" not in features:
            return False
        with self.scope():
            self.definitions.update(loop_body(s).definitions)  # to see through lets in indices
            for a in loop_body(s).laned:
                row = self._slope(a, s) in ({(): 1}, {(): -1})
                if a.buffer.dtype.itemsize < 4:
                    fine = row and a.buffer.dtype.bits == 8 * a.buffer.dtype.itemsize and "avx512bw" in features
                else:
                    fine = row or "avx512f" in features
                if not fine:
                    return False
        return True

    # Emitting.

    def _groups(self, s: For, start: int, extent: int) -> None:
        """Emit a constant extent in groups whose sizes are powers of two: LLVM does not keep vectors of other sizes in registers."""
        while extent:
            count = min(MAX_LANES, 1 << (extent.bit_length() - 1))
            if count == 1:
                self.iteration(s, start)
            else:
                self._group(s, start, count)
            start, extent = start + count, extent - count

    def _group(self, s: For, first: int | Val, count: int, multiple: int = 1) -> None:
        """Emit the body for `count` lanes from `first` on, which is a multiple of `multiple`."""
        start = Var(s.var.name)
        with self.scope(s.var, start, open=True):
            if isinstance(first, int):
                self.numbers[start] = first
            else:
                self.bind(start, first)
                self._known.append(lambda facts: facts.with_multiple(start, multiple))
            self.depth[s.var] = self.depth[start] = self.loop_depth
            self.know_range(s.var, s.start, s.stop)
            self.vector, self.lanes = Lanes(s.var, start, count), count
            self.varying.add(s.var)
            self.stmt(s.body)
            self.vector, self.lanes = None, 0
            self.varying.clear()

    def _strips(self, s: For, lanes: int, masks: bool) -> None:
        """Emit a loop over full groups of `lanes`, then the remainder: one masked group if `masks`, else a scalar loop.

        The remainder is omitted if the extent is provably a multiple of the lanes.
        """
        start, stop = self.expr(s.start), self.expr(s.stop)
        extent = self.intrinsic("smax", [self.binary("sub", stop, start), Val("0", i64)])
        rest = self.binary("urem", extent, Val(str(lanes), i64))
        full = self.binary("sub", extent, rest)
        middle = self.binary("add", start, full)
        first = Var(s.var.name)
        multiple = lanes if self.proves(Eq(FloorMod(s.start, Const(lanes, i64)), Const(0, i64))) else 1
        self.loop(first, start, middle, lambda: self._group(s, self.value_of(first), lanes, multiple), step=lanes)
        if self.proves(Eq(FloorMod(s.extent, Const(lanes, i64)), Const(0, i64))):
            return
        if not masks:
            self.loop(s.var, middle, stop, lambda: self.stmt(s.body))
            return
        then, join = self.new_label("rest"), self.new_label("join")
        self.branch_if(self.compare("icmp ne", rest, Val("0", i64)), then, join)
        self.start_block(then)
        with self.scope():
            steps = Val("<" + ", ".join(f"i32 {n}" for n in range(lanes)) + ">", i32, lanes)
            with self.active(self.compare("icmp ult", steps, self.convert("trunc", rest, i32))):
                self._group(s, middle, lanes)
        self.branch(join)
        self.start_block(join)
