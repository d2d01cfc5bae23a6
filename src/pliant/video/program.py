"""A compiled program of a stream: what it needs beside the frame, and what it keeps.

p = compile_stream("yolov8n.onnx", size=(320, 320))
state = p.new_state()                                   # one for each camera
p.step(frame, state, p.exact, most=LISTS)               # updates the state in place; p.results(state) are views of it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..api import compile, program_of
from ..compilation import State as Compilation
from ..graph.node import Function, Tensor, is_state
from ..lower.video.video import COUNTS
from ..pipeline import check_disabled, run_steps, steps_to, without
from ..program import Program
from ..runtime.executable import Executable
from ..support.errors import ShapeError
from ..support.settings import read as read_settings
from ..sym.expr import Const
from ..target import Target
from ..target import target as find_target

Array = np.ndarray[Any, Any]

EXACT = -1.0  # the limit of an image every bit of which counts
ALWAYS_WHOLE = -1  # for `most`: no pixel is listed, every image is computed as a whole
LISTS = 800  # for `most`: images of which more than 80 % changed are computed as a whole
ALWAYS_LISTS = 1000  # for `most`: pixels are listed even if all changed
CHANNELS = (1, 3, 4)  # of a frame: gray, color, color with alpha
_WORDS = ("rows", "columns")


@dataclass(frozen=True, slots=True)
class Map:
    """An image that a stream keeps: its name, its shape, and which dim is its rows."""

    name: str
    shape: tuple[int, ...]
    rows: int

    @property
    def pixels(self) -> int:
        """The number of its pixels."""
        return prod(self.shape[self.rows : self.rows + 2])


@dataclass(slots=True)
class State:
    """What a stream keeps between two frames: the tensors, and how many pixels of each map the last frame computed."""

    tensors: list[Array]
    counts: Array
    fresh: bool = True  # no frame was seen yet


class StreamProgram:
    """A compiled program that computes what changed since the last frame, and what is known of its frames, maps and results."""

    def __init__(self, executable: Executable, function: Function) -> None:
        described = function.attrs["video"]
        self.executable = executable
        self.rows: int = described["rows"]  # the dim of the frame that is its rows
        self.outputs = {str(o["name"]): int(o["place"]) for o in described["outputs"]}  # places among the results of the program
        self.maps = tuple(Map(m["name"], tuple(m["shape"]), m["rows"]) for m in described["maps"])  # in the order of `limits`
        self.frame = function.params[0].tensor  # the shape and the dtype of a frame
        self._kept = [p.tensor for p in function.params if is_state(p) and p.name != COUNTS]

    @property
    def size(self) -> tuple[int, int]:
        """The height and the width of a frame."""
        height, width = _extents(self.frame)[self.rows : self.rows + 2]
        return height, width

    @property
    def exact(self) -> Array:
        """The limits with which every bit of the results is that of the program that computes whole frames."""
        return np.full(len(self.maps), EXACT, np.float32)

    @property
    def state_bytes(self) -> int:
        """The size of a state."""
        return sum(prod(_extents(t)) * t.dtype.bits // 8 for t in self._kept)

    def new_state(self) -> State:
        """Returns a state that has seen no frame."""
        return State([np.zeros(_extents(t), t.dtype.numpy()) for t in self._kept], np.zeros(len(self.maps), np.int64))

    def step(self, frame: Any, state: State, limits: Array, most: int = LISTS) -> dict[str, Array]:
        """Computes the results of a frame; returns them by name, as views of the state, which the next frame changes.

        `limits` are by how much an element of each map may differ from the kept one that stands for it. `most` is the share of the pixels
        of a map, in thousandths, above which it is computed as a whole; the first frame always is. Raises ShapeError or TypeError for
        a frame of another shape or dtype; then the state is as before.
        """
        results = self.executable(frame, limits, ALWAYS_WHOLE if state.fresh else most, state.counts, *state.tensors)
        state.fresh = False
        return {name: results[place] for name, place in self.outputs.items()}


def compile_stream(
    src: Any,
    size: tuple[int, int] | None = None,
    dims: Mapping[str, Any] | None = None,
    rows: int | None = None,
    target: str = "native",
    threads: int | None = None,
    cache: bool = True,
    progress: Callable[[str], object] | bool | None = None,
) -> StreamProgram:
    """Compiles a program, module or model file whose one argument is a frame.

    `rows` is the dim of the frame that is its rows; without it, it follows from the dim that has 1, 3 or 4 channels. `size` is the height
    and the width of a frame where the program leaves them open; other open dims are 1, unless `dims` gives them. Raises ShapeError if the
    argument is no image, or if its size is not known.
    """
    program = program_of(src)
    program = program.with_dims(dims) if dims else program
    rows = _rows(program.entry) if rows is None else rows
    program = _of_size(program, rows, size)
    stream = stream_program(program, target, rows)
    executable = compile(stream, target, threads=threads, cache=cache, progress=progress)
    return StreamProgram(executable, stream.entry)


def stream_program(program: Program, target: str | Target, rows: int) -> Program:
    """Returns the program that computes what changed since the last frame of a video, with kept images as state.

    The one argument of the given program is the frame; its dim `rows` is the rows, the next one the columns. The result is compiled like
    any other program. `lower/video/video.py` says what its arguments and results are.
    """
    # Winograd's algorithm computes tiles, and 1x1 convolutions as matmuls have lost rows and columns; neither has listed pixels.
    left_out = {"winograd_convolutions", "pointwise_convolutions", *check_disabled(read_settings().disable)}
    start = Compilation(program.entry, find_target(target), program.constants, functions=program.functions, video=rows)
    return Program(run_steps(start, without(steps_to("video"), left_out)).function)


def _rows(function: Function) -> int:
    """Returns the dim of a frame that is its rows: the channels come before it, or behind the columns."""
    shape = function.params[0].tensor.shape if function.params and isinstance(function.params[0].annotation, Tensor) else ()
    for channels, rows in ((len(shape) - 3, len(shape) - 2), (len(shape) - 1, len(shape) - 3)):
        count = shape[channels] if len(shape) > 2 else None
        if isinstance(count, Const) and count.value in CHANNELS:
            return rows
    given = ", ".join(str(p) for p in function.params)
    raise ShapeError(
        f"the frame of `{function.name}` has no dim of 1, 3 or 4 channels",
        where=function.span,
        facts=[f"it takes {given}"],
        help="say which dim is the rows of the image: rows=2 for [batch, channels, rows, columns]",
    )


def _of_size(program: Program, rows: int, size: tuple[int, int] | None) -> Program:
    """Returns the program for frames of one size; raises ShapeError if it is not known, or is not that of the program."""
    shape = program.entry.params[0].tensor.shape
    wanted: dict[str, int] = {}
    for k, e in enumerate(shape):
        given = None if size is None or not rows <= k <= rows + 1 else size[k - rows]
        if isinstance(e, Const):
            if given is not None and given != e.value:
                what = f"{e.value} {_WORDS[k - rows]}, not {given}"
                raise ShapeError(f"frames of `{program.entry.name}` have {what}", where=program.entry.span)
            continue
        if given is None and rows <= k <= rows + 1:
            raise ShapeError(
                f"`{program.entry.name}` takes frames of any size, and a stream has one",
                where=program.entry.span,
                facts=[f"dim {k} of the frame is {e}"],
                help="give it: size=(480, 640), rows and columns",
            )
        wanted[str(e)] = 1 if given is None else given
    return program.with_dims(wanted) if wanted else program


def _extents(t: Tensor) -> tuple[int, ...]:
    """Returns the extents of a tensor of known size."""
    return tuple(int(e.value) for e in t.shape if isinstance(e, Const))
