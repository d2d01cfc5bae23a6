"""Loop programs over images that are kept between frames: the whole image, or only listed pixels of it.

A kept image has a halo of zeros, so programs need no padded copies of their operands. From a program `y = f(x)` come

    whole:    y_kept[…, i + top, j + left, …] = f(x_kept)[…, i, j, …]          for all pixels
    listed:   t[…, g, p, …] = f(x_kept)[…, at_row[g, p], at_column[g, p], …]   for pixel p of group g of a list

The listed program is the program itself, with the rows and columns of every local buffer replaced by groups and the pixels of a group. Its
sums run over the same terms in the same order, so a pixel has the bits that it has in the whole image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...dtype import i32, i64
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Alloc, Block, For, Func, Iter, Param, Reduce, Role, Stmt, Store, seq
from ...support.refusal import Refusal
from ...sym.expr import Cast, Const, Expr, Var, free_vars
from ...sym.walk import rewrite
from .change_kernels import GROUP
from .padding import NO_HALO, Halo, Padded
from .pixels import Rows, Stage, keeps_pixels, rows_of

Halos = Mapping[Buffer, Halo]


def whole_program(func: Func, stages: list[Stage], inputs: Rows, rows: Rows, padded: Mapping[Buffer, Padded], halos: Halos) -> Func:
    """Returns the program that computes all pixels of a kept image from kept images, with equal bits.

    `inputs` are the rows of the kept images that it reads, `rows` those of all its buffers with pixels.
    The output becomes an `inout` parameter with the halo `halos` gives it, if it has pixels. Its halo is not written.
    """
    bordered = {b: p for b, p in padded.items() if p.halo is not None}
    stages = [_unpadded(s, bordered, exact=False) for s in stages if s.target.buffer not in bordered]
    build = _Build(func, rows, inputs, halos)
    body: list[Stmt] = []
    for stage in stages:
        body += build.allocated(stage)
        body.append(build.nest(stage))
    for b in func.buffers:
        if func.role(b) == "out" and b in rows:
            body.append(_stored(build.buffers[b], build.kept(b), rows[b], halos.get(b, NO_HALO)))
    params = [Param(*build.parameter(p)) for p in func.params]
    return func.with_(name=f"{func.name}_whole", params=tuple(params), body=seq(*body))


def listed_program(
    func: Func, stages: list[Stage], inputs: Rows, padded: Mapping[Buffer, Padded], halos: Halos, groups: Var
) -> Func | Refusal:
    """Returns the program that computes listed pixels of its one output, or why it cannot run pixel by pixel.

    It has two more inputs, the rows and the columns of the pixels in the image. Channels of its output may come last (`_Build.ordered`).
    """
    stages = [_unpadded(s, padded, exact=_padded_exactly(s, padded)) for s in stages if s.target.buffer not in padded]
    rows = rows_of(stages, inputs)
    if not keeps_pixels(stages, rows, inputs):
        return Refusal(f"`{func.name}` needs other pixels of its own intermediate results")
    at = tuple(Buffer(name, i32, (groups, Const(GROUP, i64))) for name in ("at_row", "at_column"))
    sums = [s for s in stages if isinstance(s.block.body, Reduce)]
    weighted = bool(sums) and all(any(x.buffer not in rows for x in s.loads) for s in sums)
    build = _Build(func, rows, inputs, halos, at, groups, weighted)
    body: list[Stmt] = []
    for stage in stages:
        body += build.allocated(stage)
        body.append(build.nest(stage))
    params = [Param(build.kept(p.value), p.role) if isinstance(p.value, Buffer) else p for p in func.params if p.role != "out"]
    outs = [Param(build.buffers[p.value], "out") for p in func.params if p.role == "out" and isinstance(p.value, Buffer)]
    listed = func.with_(name=f"{func.name}_listed", params=(*params, *map(Param, at), *outs), body=seq(*body))
    if _sizes(stages, rows) - {*listed.symbols, *listed.scalars}:
        return Refusal(f"`{func.name}` computes with the size of its result")
    return listed


def _sizes(stages: list[Stage], rows: Rows) -> set[Var]:
    """Returns the symbols that the loops and values of stages use, without the numbers of rows and columns of what they write."""
    used: set[Var] = set()
    for s in stages:
        stops = [x.stop for v, x in s.loops.items() if v not in s.pixel(rows)]
        used |= {v for e in (*stops, *s.values) for v in free_vars(e)} - set(s.loops)
    return used


def _padded_exactly(stage: Stage, padded: Mapping[Buffer, Padded]) -> bool:
    """True if some image that a stage reads has a border that no halo holds, so that its elements are selected one by one."""
    return any(padded[x.buffer].halo is None for x in stage.loads if x.buffer in padded)


def _unpadded(stage: Stage, padded: Mapping[Buffer, Padded], exact: bool) -> Stage:
    """Returns the stage with elements of padded images replaced by elements of the images; with `exact`, by the selects of the border."""

    def element(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer in padded:
            return padded[e.buffer].element(e.indices, exact)
        return None

    return Stage(stage.block, stage.loops, stage.target, tuple(rewrite(e, element) for e in stage.values))


@dataclass(slots=True)
class _Build:
    """Rebuilds the stages of a program over kept images; with `at`, for listed pixels."""

    func: Func
    rows: Rows
    inputs: Rows
    halos: Halos
    at: tuple[Buffer, ...] = ()
    groups: Var | None = None
    weighted: bool = False  # all sums are products with weights
    buffers: dict[Buffer, Buffer] = field(default_factory=dict)  # local buffers and outputs -> what the program writes instead
    memory: dict[Buffer, Buffer] = field(default_factory=dict)  # parameters -> kept images

    def kept(self, b: Buffer) -> Buffer:
        """Returns the parameter for a kept image; other parameters are as they were."""
        if b not in self.memory:
            halo = self.halos.get(b, NO_HALO)
            image = b in self.rows and (b in self.inputs or self.func.role(b) == "out")
            self.memory[b] = Buffer(b.name, b.dtype, halo.around(b.shape, self.rows[b]), None, b.scope) if image and halo != NO_HALO else b
            if image and self.func.role(b) == "out" and self.memory[b] is b:
                self.memory[b] = Buffer(b.name, b.dtype, b.shape, None, b.scope)
        return self.memory[b]

    def parameter(self, p: Param) -> tuple[Buffer | Var, Role]:
        """Returns a parameter of the program for whole images: kept images, and an output that is kept is updated."""
        if not isinstance(p.value, Buffer):
            return p.value, p.role
        if p.role == "out" and p.value not in self.rows:
            return self.buffers[p.value], p.role
        return self.kept(p.value), "inout" if p.role == "out" else p.role

    def allocated(self, stage: Stage) -> list[Stmt]:
        """Returns the allocation of a stage's target, if the stage is its first; an output is computed in a local buffer first."""
        b = stage.target.buffer
        if b in self.buffers:
            return []
        output = b in self.func.buffers
        if output and (self.at or b not in self.rows):
            self.buffers[b] = Buffer(b.name, b.dtype, self.shape(b))
            return []
        self.buffers[b] = Buffer(f"{b.name}_new" if output else b.name, b.dtype, self.shape(b), None, "workspace" if output else b.scope)
        return [Alloc(self.buffers[b])]

    def shape(self, b: Buffer) -> tuple[Expr, ...]:
        """Returns the shape of what a program writes: with groups and their pixels instead of rows and columns for listed pixels."""
        if self.groups is None or b not in self.rows:
            return b.shape
        r = self.rows[b]
        return self.ordered(b, (*b.shape[:r], self.groups, Const(GROUP, i64), *b.shape[r + 2 :]))

    def ordered(self, b: Buffer, items: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Returns the dims of a listed image in the order of its memory.

        Channels that lie in planes come last if sums are products with weights: a list has no rows of pixels that vectors could go along.
        Rules for such sums keep their order in every layout; a sum over channels itself, as in a softmax, would get another one.
        """
        r = self.rows.get(b, 0)
        if not self.at or not self.weighted or r == 0 or r + 2 < b.ndim:
            return items
        return (*items[: r - 1], *items[r:], items[r - 1])

    def nest(self, stage: Stage) -> Stmt:
        """Returns the loop nest of a stage."""
        block, s = stage.block, stage.block.body
        places = self.places(stage)
        values = [self.expr(e, stage, places) for e in stage.values]
        target = Load(self.buffers[stage.target.buffer], self.ordered(stage.target.buffer, stage.target.indices))
        body: Stmt
        init: Stmt | None = None
        if isinstance(s, Reduce):
            body = Reduce(s.combiner, (target,), tuple(values[: len(s.values)]))
            if isinstance(block.init, Store):
                init = Store(target.buffer, target.indices, values[-1])
        else:
            body = Store(target.buffer, target.indices, values[0])
        pixel = stage.pixel(self.rows) if stage.target.buffer in self.rows else ()
        extents: Mapping[Var, Expr] = {}
        if self.groups is not None:
            extents = dict(zip(pixel, (self.groups, Const(GROUP, i64)), strict=True))
        nest: Stmt = Block(block.name, tuple(Iter(i.var, i.kind, i.value) for i in block.iters), body, init, annotations=block.annotations)
        for v, x in reversed(list(stage.loops.items())):
            nest = For(x.var, x.start, extents.get(v, x.stop), x.kind, nest, x.annotations)
        return nest

    def places(self, stage: Stage) -> dict[Expr, Expr]:
        """Returns the row and the column in the image for the iterators of a stage; empty if all pixels are computed."""
        if not self.at:
            return {}
        pixel = stage.pixel(self.rows)
        return {v: Cast(i64, Load(b, pixel)) for v, b in zip(pixel, self.at, strict=True)}

    def expr(self, e: Expr, stage: Stage, places: Mapping[Expr, Expr]) -> Expr:
        """Returns an expression over the new buffers."""
        pixel = stage.pixel(self.rows) if self.at else ()

        def leaf(x: Expr) -> Expr | None:
            if isinstance(x, Load):
                indices = tuple(rewrite(i, leaf) for i in x.indices)
                if x.buffer in self.buffers:
                    r = self.rows.get(x.buffer)
                    if self.at and r is not None:
                        indices = self.ordered(x.buffer, (*indices[:r], *pixel, *indices[r + 2 :]))
                    return Load(self.buffers[x.buffer], indices)
                if x.buffer in self.inputs:
                    r = self.inputs[x.buffer]
                    return Load(self.kept(x.buffer), self.halos.get(x.buffer, NO_HALO).inside(indices, r))
                return Load(x.buffer, indices)
            return places.get(x, x) if isinstance(x, Var) else None

        return rewrite(e, leaf)


def _stored(source: Buffer, target: Buffer, rows: int, halo: Halo) -> Stmt:
    """Returns the loop nest that stores a computed image inside of the halo of a kept one."""
    loops = [Var(f"i{k}", i64) for k in range(source.ndim)]
    iterators = tuple(Var(f"v{k}", i64) for k in range(source.ndim))
    store = Store(target, halo.inside(iterators, rows), Load(source, iterators))
    nest: Stmt = Block("kept", tuple(Iter(v, "S", x) for v, x in zip(iterators, loops, strict=True)), store)
    for x, n in zip(reversed(loops), reversed(source.shape), strict=True):
        nest = For(x, Const(0, i64), n, "serial", nest)
    return nest
