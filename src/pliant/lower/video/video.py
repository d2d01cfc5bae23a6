"""The step `video`: a program that computes what changed since the last frame, from a program that computes a whole frame.

    y = conv(x); z = mean(y)        ->      changed, kept_x = compare(x, kept_x)
                                            if count(changed) > 0:
                                                changed = conv_changed(changed)
                                                if count(changed) > most:   kept_y = conv_whole(kept_x)
                                                else:                       kept_y = put_back(conv_listed(kept_x, list_pixels(changed)))
                                                kept_z = mean(kept_y)

Images become state: each is kept until the next frame, with a halo of zeros for the windows that read it. For each image, the pixels that
may have changed follow from the read regions of its loop program (`changed_pixels.py`), not from the name of an operator. Listed pixels are
computed by the same loop program, over a list in place of rows and columns (`image_programs.py`), with the same bits. Then they are
compared with the kept ones: what did not move is no change for the next program. After a whole image, all pixels count as moved.

What the analysis does not bound is computed as a whole: an image that needs all pixels of another one, which then is compared with the kept
one; and everything without pixels. Nothing is computed if no pixel of the frame moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...dtype import f32, i64
from ...graph import node as g
from ...graph import opset as ops
from ...graph.builder import Builder
from ...graph.node import CallLoop, Tensor, Value
from ...graph.rewrite import Renamer
from ...loop.analysis.operation_count import cost
from ...loop.buffer import Buffer
from ...loop.stmt import Func
from ...support.errors import UnsupportedError
from ...support.refusal import Refusal
from ...sym.expr import Const, Dim, Expr, Var, const, product, substitute
from ...sym.simplify import simplify
from ..callee import callee_of, func_of
from .change_kernels import GROUP, Image, compare, count, everywhere, keep, list_pixels, put_back
from .changed_pixels import changed_pixels
from .image_programs import listed_program, whole_program
from .padding import NO_HALO, Halo, Padded, padded_images
from .pixels import Rows, Stage, rows_of, stages_of

LIMITS, MOST, COUNTS = "limits", "most", "counts"  # names of parameters that are no image
MOST_LANES = 64  # most elements of a pixel that one vector loop goes through: more are several registers that do not pay
CHEAP = 8  # operations on an element: what a comparison and a list take, about
ALL = 1000  # `most` is in thousandths of the pixels of an image


@dataclass(frozen=True, slots=True)
class ImageProgram:
    """A call that computes an image from images: its loop program, and what is known of its buffers."""

    call: CallLoop
    func: Func
    stages: list[Stage]
    inputs: Mapping[Buffer, Value]  # kept images
    output: Buffer
    rows: Rows
    padded: Mapping[Buffer, Padded]
    by_pixel: bool  # a pixel depends on windows of the inputs, and on nothing else that changes
    operations: int  # for all pixels; 0 if the number depends on a dim


@dataclass(slots=True)
class Analysis:
    """Which values of a function depend on the frame, which of them are images, and the halos that their readers want."""

    rows: dict[Value, int] = field(default_factory=dict)  # images -> the dim of their rows
    changing: set[Value] = field(default_factory=set)
    programs: dict[g.Node, ImageProgram] = field(default_factory=dict)
    halos: dict[Value, Halo] = field(default_factory=dict)


def analyze(function: g.Function, frame: Value, rows: int) -> Analysis:
    """Returns what is known of the values of a function whose parameter `frame` is an image."""
    a = Analysis({frame: rows}, {frame})
    whole: set[Value] = set()  # images that something reads which cannot be rewritten for a halo
    for n in function.nodes:
        if a.changing.isdisjoint(g.all_uses(n)):
            continue
        a.changing.update(n.outs)
        program = _image_program(n, a) if isinstance(n, CallLoop) else None
        if program is None:
            whole.update(v for v in g.all_uses(n) if v in a.rows)
            continue
        a.programs[n] = program
        a.rows[n.outs[0]] = program.rows[program.output]
        for p in program.padded.values():
            image = program.inputs.get(p.source.buffer)
            if image is not None and p.halo is not None:
                a.halos[image] = a.halos.get(image, NO_HALO).joined(p.halo)
    for v in (*whole, *function.results):
        a.halos.pop(v, None)
    return a


def _image_program(n: CallLoop, a: Analysis) -> ImageProgram | None:
    """Returns a call as a program over images; None if its result is no image, or if its loops are not understood."""
    func = func_of(n.callee)
    roles = [p.role for p in func.params if isinstance(p.value, Buffer)]
    given = dict(zip([p.value for p in func.params if p.role != "out"], n.args, strict=True))
    inputs = {b: v for b, v in given.items() if isinstance(b, Buffer) and isinstance(v, Value) and v in a.rows}
    stages = stages_of(func)
    if roles.count("out") != 1 or "inout" in roles or not inputs or isinstance(stages, Refusal) or n.requires:
        return None
    where = {b: a.rows[v] for b, v in inputs.items()}
    rows = rows_of(stages, where)
    output = next(b for b in func.buffers if func.role(b) == "out")
    if output not in rows or len(inputs) != len(set(inputs.values())):
        return None
    others = [v for b, v in given.items() if b not in inputs and isinstance(v, Value) and v in a.changing]
    by_pixel = not others and all(s.target.buffer in rows for s in stages)
    return ImageProgram(n, func, stages, inputs, output, rows, padded_images(func, stages, where), by_pixel, _operations(n, func))


def video(function: g.Function, rows: int) -> g.Function:
    """Returns the function from a frame to the results, which keeps what it computed for the last frame as state.

    The frame is the one parameter that is no state; dim `rows` of it are the rows of an image, the next one the columns. New parameters:

    limits    by how much an element of each image may differ from the newest one, -1: not by a bit
    most      the share of the pixels of an image, in thousandths, above which it is computed as a whole; -1: always
    counts    a state: how many pixels of each image may have changed
    kept_…    states: the images, then results that are no images

    All state is returned: results first, then `counts`, then the others in the order of the parameters.
    """
    if len(function.params) != 1 or not isinstance(function.params[0].annotation, Tensor):
        raise UnsupportedError(
            f"`{function.name}` takes {len(function.params)} arguments, and a video program takes one tensor, the frame",
            where=function.span,
            help="give a function whose other inputs are constants",
        )
    frame = function.params[0]
    return _Video(function, frame, analyze(function, frame, rows)).function()


class _Video:
    """Builds the function of a stream; values are those of the given function until `new` says what they have become."""

    def __init__(self, function: g.Function, frame: Value, analysis: Analysis) -> None:
        self.given, self.frame, self.analysis = function, frame, analysis
        self.b = Builder(f"{function.name}_video")
        self.new = Renamer(name=self.b.unique)
        self.images: list[Value] = [frame, *(n.outs[0] for n in function.nodes if n in analysis.programs)]
        self.results = [v for v in dict.fromkeys(function.results) if v not in self.images and v in analysis.changing]
        self.changed: dict[Value, Value] = {}  # images -> the mask of their changed pixels
        self.state: dict[Value, Value] = {}  # kept tensors -> their newest version
        self.callees: dict[Any, g.Callee] = {}

    def function(self) -> g.Function:
        """Returns the function of the stream."""
        b, maps = self.b, const(len(self.images))
        self.new.values[self.frame] = b.param(self.frame.name, self.frame.annotation)
        self.limits = b.param(LIMITS, Tensor(f32, (maps,)))
        self.most = b.param(MOST, g.Scalar(i64))
        self.counts = b.param(COUNTS, Tensor(i64, (maps,), state=True))
        for v in (*self.images, *self.results):
            self.state[v] = b.param(f"kept_{v.name}", Tensor(v.tensor.dtype, self.kept_shape(v), state=True))
        with b:
            for n in self.given.nodes:
                if self.analysis.changing.isdisjoint(n.outs):
                    b.append(self.new.node(n))
            x = self.new.use(self.frame)
            self.state[self.frame], mask = self.call(compare, [self.image(self.frame)], [x, self.limits, const(0), self.state[self.frame]])
            pixels = self.counted(mask, 0)
            self.changed[self.frame] = mask
            # With a negative share everything is computed, as for the first frame.
            moved: Any = ops.greater(pixels, ops.minimum(self.most, 0))
            before = self.states()
            b.open()
            for n in self.given.nodes:
                self.node(n)
            for v in self.results:
                (self.state[v],) = self.call(keep, [v.tensor.dtype, len(v.tensor.shape)], [self.new.use(v), self.state[v]])
            then = b.close(self.states())
            b.open()
            names = list(self.state)
            self.counts, *kept = b.if_(moved, then, b.close(before))
            self.state = dict(zip(names, kept, strict=True))
            return b.finish(self.returned(), {"video": self.description()})

    def description(self) -> dict[str, Any]:
        """Returns what a stream has to know of its function, as JSON: the images that are kept and the place of each result."""
        results = list(dict.fromkeys(self.given.results))
        places = [results.index(v) for v in self.given.results]
        outputs = [{"name": n, "place": p} for n, p in zip(g.output_names(self.given), places, strict=True)]
        operations = {self.frame: 0} | {n.outs[0]: p.operations for n, p in self.analysis.programs.items()}
        maps = [
            {"name": v.name, "shape": _extents(v.tensor.shape), "rows": self.analysis.rows[v], "operations": n}
            for v, n in operations.items()
        ]
        return {"rows": self.analysis.rows[self.frame], "outputs": outputs, "maps": maps}

    def states(self) -> list[Value]:
        """Returns the newest versions of all state: the counts, then the kept tensors."""
        return [self.counts, *self.state.values()]

    def returned(self) -> list[Value]:
        """Returns the results of the function: those of the given one, then all other state."""
        for v in self.given.results:
            if v not in self.state:
                raise UnsupportedError(f"the result `{v.name}` does not depend on the frame", where=self.given.span)
        first = [self.state[v] for v in dict.fromkeys(self.given.results)]
        return [*first, *(s for s in self.states() if s not in first)]

    def kept_shape(self, v: Value) -> tuple[Expr, ...]:
        """Returns the shape in which a tensor is kept: an image with its halo."""
        halo = self.analysis.halos.get(v, NO_HALO)
        return halo.around(v.tensor.shape, self.analysis.rows[v]) if v in self.analysis.rows else v.tensor.shape

    def image(self, v: Value) -> Image:
        """Returns the form of a kept image, by which its kernels are chosen."""
        shape, rows = v.tensor.shape, self.analysis.rows[v]
        last = shape[-1]
        minor = int(last.value) if len(shape) > rows + 2 and isinstance(last, Const) and last.value <= MOST_LANES else 0
        return Image(v.tensor.dtype, len(shape), rows, self.analysis.halos.get(v, NO_HALO), minor)

    # Nodes that depend on the frame.

    def node(self, n: g.Node) -> None:
        """Appends what computes the results of a node of the given function, if they depend on the frame."""
        if self.analysis.changing.isdisjoint(n.outs):
            return
        self.b.origin, self.b.span = n.origin, n.span
        program = self.analysis.programs.get(n)
        if program is None:
            self.b.append(self.new.node(n))
            return
        v = program.call.outs[0]
        if program.by_pixel:
            self.by_pixel(program, v)
        else:
            self.as_a_whole(program, v)
        if v not in self.analysis.halos:
            self.new.values[v] = self.state[v]

    def as_a_whole(self, program: ImageProgram, v: Value) -> None:
        """Appends a program whose pixels depend on more than a window: computes the image, and compares it with the kept one."""
        (y,) = self.run(program, self.whole(program, keep=False))
        k = self.images.index(v)
        self.state[v], self.changed[v] = self.call(compare, [self.image(v)], [y, self.limits, const(k), self.state[v]])
        self.counted(self.everywhere(v), k)

    def by_pixel(self, program: ImageProgram, v: Value) -> None:
        """Appends a program whose pixels depend on windows: computes listed pixels, or the whole image if these are many."""
        k = self.images.index(v)
        mask = self.mask(program)
        pixels = self.counted(mask, k)
        b, kept = self.b, self.state[v]
        if self.is_cheap(program, v):
            self.state[v] = self.run(program, self.whole(program, keep=True), {program.output: kept})[0]
            self.changed[v] = mask
            return
        h, w = self.extents(v)
        many: Any = ops.greater(ops.mul(pixels, ALL), ops.mul(self.most, b.scalar(simplify(h * w))))
        b.open()
        (whole,) = self.run(program, self.whole(program, keep=True), {program.output: kept})
        then = b.close([whole, self.everywhere(v)])
        b.open()
        self.state[v], self.changed[v] = b.if_(many, then, b.close(self.listed(program, v, mask)))

    def listed(self, program: ImageProgram, v: Value, mask: Value) -> Sequence[Value]:
        """Appends a program that computes the pixels of a mask; returns the kept image and the mask of the pixels that moved.

        An image that cannot be computed pixel by pixel is computed as a whole, and compared.
        """
        groups, k, kept = Dim("groups"), const(self.images.index(v)), self.state[v]
        listed = listed_program(program.func, program.stages, self.where(program), self.padded(program), self.halos(program), groups)
        if isinstance(listed, Refusal):
            (y,) = self.run(program, self.whole(program, keep=False))
            return self.call(compare, [self.image(v)], [y, self.limits, k, kept])
        h, w = self.extents(v)
        at_row, at_column, place, number = self.call(list_pixels, [], [mask])
        number = ops.bind_dim(number, Dim("groups"), most=simplify((h * w + const(GROUP - 1)) // const(GROUP)))
        lists = [ops.prefix(x, number.annotation.value) for x in (at_row, at_column)]
        (new,) = self.run(program, listed, dict(zip(listed.buffers[-3:-1], lists, strict=True)), {groups: number.annotation.value})
        last = listed.buffers[-1].shape.index(groups) != self.analysis.rows[v]
        return self.call(put_back, [replace(self.image(v), last=last)], [new, place, self.limits, k, kept])

    def is_cheap(self, program: ImageProgram, v: Value) -> bool:
        """True if computing all pixels takes no longer than listing some: copies, concatenations, a few operations on an element."""
        elements = product(v.tensor.shape)
        return isinstance(elements, Const) and program.operations <= CHEAP * int(elements.value)

    def mask(self, program: ImageProgram) -> Value:
        """Returns which pixels may have changed: a mask of an input, or the result of a program that is appended."""
        masks = changed_pixels(program.func, program.stages, program.rows, self.where(program))
        if isinstance(masks, Buffer):
            return self.changed[program.inputs[masks]]
        by_name = {b.name: self.changed[v] for b, v in program.inputs.items()}
        return self.run(program, masks, {b: by_name[b.name] for b in masks.buffers if b.name in by_name})[0]

    def counted(self, mask: Value, k: int) -> Value:
        """Appends the count of the changed pixels of image `k`; returns it as a host scalar."""
        self.counts, total = self.call(count, [], [mask, const(k), self.counts])
        h, w = mask.tensor.shape
        value: Value = ops.bind_dim(total, Dim("pixels"), most=simplify(h * w))
        return value

    def everywhere(self, v: Value) -> Value:
        """Appends a mask of an image in which all pixels changed."""
        return self.call(everywhere, [], [], self.extents(v))[0]

    def extents(self, v: Value) -> tuple[Expr, Expr]:
        """Returns the numbers of rows and columns of an image."""
        r = self.analysis.rows[v]
        return v.tensor.shape[r], v.tensor.shape[r + 1]

    # Programs over kept images.

    def where(self, program: ImageProgram) -> Rows:
        """Returns the rows of the images that a program reads."""
        return {b: self.analysis.rows[v] for b, v in program.inputs.items()}

    def halos(self, program: ImageProgram) -> dict[Buffer, Halo]:
        """Returns the halos of the kept images that a program reads and writes."""
        values = {**program.inputs, program.output: program.call.outs[0]}
        return {b: self.analysis.halos.get(v, NO_HALO) for b, v in values.items()}

    def padded(self, program: ImageProgram) -> dict[Buffer, Padded]:
        """Returns the padded copies that a program makes of its operands; those that the halos do not hold have none."""
        halos = self.halos(program)
        held = {b: p.halo is not None and halos[p.source.buffer].contains(p.halo) for b, p in program.padded.items()}
        return {b: p if held[b] else p.without_halo() for b, p in program.padded.items()}

    def whole(self, program: ImageProgram, keep: bool) -> Func:
        """Returns the program over kept images that computes all pixels: into the kept image, or into a new one."""
        rows = program.rows if keep else {b: r for b, r in program.rows.items() if b is not program.output}
        return whole_program(program.func, program.stages, self.where(program), rows, self.padded(program), self.halos(program))

    def run(
        self, program: ImageProgram, func: Func, given: Mapping[Buffer, Value] | None = None, dims: Mapping[Var, Expr] | None = None
    ) -> Sequence[Value]:
        """Appends a call of a program that was made from that of an image; returns its results.

        `given` are its arguments that the original call does not have, by buffer or by the name of a buffer of the original program.
        """
        original = zip([p for p in program.func.params if p.role != "out"], program.call.args, strict=True)
        by_name: dict[str, Any] = {p.value.name: self.argument(a) for p, a in original}
        by_name |= {b.name: v for b, v in (given or {}).items()}
        symbols = dict(zip(program.call.callee.symbols, program.call.dims, strict=True)) | dict(dims or {})
        args = [by_name[p.value.name] for p in func.params if p.role != "out"]
        return self.b.call_loop(callee_of(func), args, [symbols[s] for s in func.symbols])

    def argument(self, a: Value | Expr) -> Value | Expr:
        """Returns what a loop program gets for an argument of the given one: kept images are in their newest version."""
        return self.state[a] if isinstance(a, Value) and a in self.analysis.rows else self.new.use(a) if isinstance(a, Value) else a

    def call(
        self, make: Callable[..., Func], form: Sequence[Any], args: Sequence[Any], dims: Sequence[Expr] | None = None
    ) -> Sequence[Value]:
        """Appends a call of one of the kernels around those of the net; `form` is what it is made for, such as a form of images.

        Its dims follow from the arguments, unless they are given.
        """
        key = (make, tuple(form))
        if key not in self.callees:
            self.callees[key] = callee_of(make(*form))
        return self.b.call_loop(self.callees[key], args, dims)


def _extents(shape: Sequence[Expr]) -> list[int | str]:
    """Returns the extents of a shape: numbers, and text where they depend on a dim."""
    return [int(e.value) if isinstance(e, Const) else str(e) for e in shape]


def _operations(call: CallLoop, func: Func) -> int:
    """Returns how many operations a call takes; 0 if the number depends on a dim."""
    operations = simplify(substitute(cost(func).operations, dict(zip(call.callee.symbols, call.dims, strict=True))))
    return int(operations.value) if isinstance(operations, Const) else 0
