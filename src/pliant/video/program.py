"""A compiled program of a stream: what it needs beside the frame, and what it keeps.

p = compile_stream("yolov8n.onnx", size=(320, 320))
state = p.new_state()                                   # one for each camera
y = p.step(frame, state, p.exact)                       # by name: views of the state, which the next frame changes
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..api import compile, program_of
from ..artifact import load
from ..compilation import State as Compilation
from ..graph.node import Function, Tensor, is_state
from ..lower.video.video import COUNTS
from ..pipeline import check_disabled, run_steps, steps_to, without
from ..program import Program, unique_names
from ..provenance import Provenance
from ..runtime.executable import Executable
from ..support.errors import ModelFileError, ShapeError
from ..support.settings import read as read_settings
from ..sym.expr import Const
from ..target import Target
from ..target import target as find_target
from .pictures import Pixels, from_pictures

Array = np.ndarray[Any, Any]

EXACT = -1.0  # the limit of an image every bit of which counts
ALWAYS_WHOLE = -1  # for `most`: no pixel is listed, every image is computed as a whole
LISTS = 750  # for `most`: of exact streams; listing pixels takes about 4/3 of the time of an image as a whole
ALWAYS_LISTS = 1000  # for `most`: pixels are listed even if all changed
CHANNELS = (1, 3, 4)  # of a frame: gray, color, color with alpha
_WORDS = ("rows", "columns")


@dataclass(frozen=True, slots=True)
class Map:
    """An image that a stream keeps: its name, its shape, which dim is its rows, and how many operations compute the whole image."""

    name: str
    shape: tuple[int, ...]
    rows: int
    operations: int

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


@dataclass(frozen=True, slots=True)
class Last:
    """What the last frame took."""

    changed: float  # the share of the frame's pixels that moved
    density: float  # the share of the operations on maps
    ms: float
    whole: tuple[str, ...]  # maps that were computed as a whole

    def __str__(self) -> str:
        whole = f", {len(self.whole)} layers as a whole" if self.whole else ""
        return f"{self.changed:.1%} of the pixels changed, {self.density:.1%} of the operations in {self.ms:.2f} ms{whole}"


class StreamProgram:
    """A compiled program that computes what changed since the last frame, and what is known of its frames, maps and results."""

    def __init__(self, executable: Executable, function: Function) -> None:
        self.executable, self.function = executable, function
        self._kept = [p.tensor for p in function.params if is_state(p) and p.name != COUNTS]
        described = _checked(function.attrs.get("video"), function, len(self._kept))
        self.rows: int = described["rows"]  # the dim of the frame that is its rows
        self.outputs = {str(o["name"]): int(o["place"]) for o in described["outputs"]}  # places among the results of the program
        maps = described["maps"]  # in the order of `limits`
        self.maps = tuple(Map(m["name"], tuple(m["shape"]), m["rows"], m["operations"]) for m in maps)
        self.frame = function.params[0].tensor  # the shape and the dtype of a frame
        self.calibration = described.get("calibration")  # of a stream that was saved; `calibration.py` checks it
        self._operations = np.array([m.operations for m in self.maps], np.float64)
        self._pixels = np.array([m.pixels for m in self.maps], np.float64)

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

    def save(self, path: str | os.PathLike[str], calibration: Mapping[str, Any] | None = None) -> None:
        """Writes a `.pliant` file, which `load_stream` reads, with its calibration."""
        entry = self.function.with_(attrs={**self.function.attrs, "video": {**self.function.attrs["video"], "calibration": calibration}})
        of = _provenance(self.executable)
        Provenance(lambda: Program(entry), of.target, of.checked, of.decisions, of.effort, of.accuracy).save(self.executable, path, ())

    def whole(self, state: State, most: int = LISTS) -> Array:
        """Returns which maps the last frame computed as a whole; `most` is what `step` was given."""
        return (state.counts * 1000 > most * self._pixels) & bool(state.counts[0] or most < 0)

    def computed(self, state: State, most: int = LISTS) -> Array:
        """Returns how many pixels of each map the last frame computed; `most` is what `step` was given."""
        if not state.counts[0] and most >= 0:
            return np.zeros(len(self.maps), np.int64)
        counts = np.where(self.whole(state, most), self._pixels, state.counts)
        counts[0] = state.counts[0]
        return counts.astype(np.int64)

    def density(self, state: State, most: int = LISTS) -> float:
        """Returns the share of the operations on images that the last frame took, from 0 to 1; `most` is what `step` was given."""
        total = float(self._operations.sum())
        return float((self._operations * self.computed(state, most) / self._pixels).sum()) / total if total else 0.0

    def step(self, frame: Any, state: State, limits: Array, most: int = LISTS) -> dict[str, Array]:
        """Computes the results of a frame; returns them by name, as views of the state, which the next frame changes.

        `limits` are by how much an element of each map may differ from the kept one that stands for it. `most` is the share of the pixels
        of a map, in thousandths, above which it is computed as a whole; the first frame always is. Raises ShapeError or TypeError for
        a frame of another shape or dtype; then the state is as before.
        """
        if state.fresh:
            limits, most = self.exact, ALWAYS_WHOLE
        results = self.executable(frame, limits, most, state.counts, *state.tensors)
        state.fresh = False
        return {name: results[place] for name, place in self.outputs.items()}


def compile_stream(
    src: Any,
    size: tuple[int, int] | None = None,
    dims: Mapping[str, Any] | None = None,
    rows: int | None = None,
    pixels: Pixels | None = None,
    target: str = "native",
    threads: int | None = None,
    cache: bool = True,
    progress: Callable[[str], object] | bool | None = None,
) -> StreamProgram:
    """Compiles a program, module or model file whose one argument is a frame.

    `rows` is the dim of the frame that is its rows; without it, it follows from the dim that has 1, 3 or 4 channels. `size` is the height
    and the width of a frame where the program leaves them open; other open dims are 1, unless `dims` gives them. Raises ShapeError if the
    argument is no image, or if its size is not known. With `pixels`, frames are pictures, u8[1, rows, columns, channels].
    """
    program, rows = fixed(src, size, dims, rows)
    if pixels is not None:
        program, rows = from_pictures(program, rows, pixels), len(program.entry.params[0].tensor.shape) - 3
    stream = stream_program(program, target, rows)
    executable = compile(stream, target, threads=threads, cache=cache, progress=progress)
    return StreamProgram(executable, stream.entry)


def load_stream(path: str, threads: int | None = None) -> StreamProgram:
    """Loads the program of a stream from a `.pliant` file that `StreamProgram.save` wrote; raises ModelFileError for another file."""
    executable = load(path, threads)
    entry = _provenance(executable).program.entry
    if "video" not in entry.attrs:
        raise ModelFileError(f"{path} is no video stream", help="give the model that it was compiled from, or a file of Stream.save")
    try:
        return StreamProgram(executable, entry)
    except ValueError as problem:
        raise ModelFileError(f"{path} is damaged: {problem}") from None


def _provenance(executable: Executable) -> Provenance:
    found = executable._provenance
    assert isinstance(found, Provenance)  # it was compiled or loaded here
    return found


def _checked(described: Any, function: Function, kept: int) -> dict[str, Any]:
    """Returns the description of a stream, which a file may hold; raises ValueError unless it fits the function."""
    try:
        outputs, maps, rows = described["outputs"], described["maps"], described["rows"]
        named = all(isinstance(x["name"], str) for x in (*outputs, *maps))
        placed = all(type(o["place"]) is int and 0 <= o["place"] < len(function.results) for o in outputs)
        shaped = all(type(n) is int and n > 0 for m in maps for n in m["shape"])
        counted = all(type(m["operations"]) is int and 0 <= m["operations"] < 2**63 for m in maps)
        rowed = type(rows) is int and all(type(m["rows"]) is int and 0 <= m["rows"] < len(m["shape"]) - 1 for m in maps)
        known = len(function.params[1].tensor.shape) == 1 and str(function.params[1].tensor.shape[0]) == str(len(maps))
        if not (named and placed and shaped and counted and rowed and known and 0 < len(maps) <= kept and outputs):
            raise ValueError("the description of its maps does not fit its program")
    except (TypeError, KeyError, IndexError, AttributeError):
        raise ValueError("the description of its maps cannot be read") from None
    result: dict[str, Any] = described
    return result


def fixed(
    src: Any, size: tuple[int, int] | None = None, dims: Mapping[str, Any] | None = None, rows: int | None = None
) -> tuple[Program, int]:
    """Returns a program for frames of one size, and the dim of its frame that is the rows; arguments are those of `compile_stream`."""
    program = program_of(src)
    program = program.with_dims(dims) if dims else program
    rows = _rows(program.entry) if rows is None else rows
    return _of_size(program, rows, size), rows


def stream_program(program: Program, target: str | Target, rows: int) -> Program:
    """Returns the program that computes what changed since the last frame of a video, with kept images as state.

    The one argument of the given program is the frame; its dim `rows` is the rows, the next one the columns. The result is compiled like
    any other program. `lower/video/video.py` says what its arguments and results are.
    """
    # Winograd's algorithm computes tiles, and 1x1 convolutions as matmuls have lost rows and columns; neither has listed pixels.
    left_out = {"winograd_convolutions", "pointwise_convolutions", *check_disabled(read_settings().disable)}
    start = Compilation(program.entry, find_target(target), program.constants, functions=program.functions, video=rows)
    function = run_steps(start, without(steps_to("video"), left_out)).function
    return Program(unique_names(function))  # its text is all that a file holds of it


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
