"""`pliant.video.Stream`: a net that computes what changed since the last frame.

    s = Stream("yolov8n.onnx", error=0.01)     # or exact=True
    for frame in frames("clip.mp4", size=s.size):
        y = s(frame)
        print(s.last)                          # computed 23 % of the operations in 3.1 ms

Exact streams have the bits of the net that computes whole frames. Bounded ones let an element of a map differ from its newest value by the
limit of the map; `calibration.py` finds the limits on frames of the clip.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..support.errors import Error, ModelFileError
from ..support.settings import read as read_settings
from ..support.source import caller_span
from .calibration import Calibration, Metric, as_json, calibrate, from_json, largest_error
from .pictures import Pixels
from .program import ALWAYS_LISTS, ALWAYS_WHOLE, LISTS, Array, Last, State, StreamProgram, compile_stream, load_stream
from .report import write_report

WAYS = ("auto", "lists", "dense")  # values of PLIANT_VIDEO
FIRST_FRAMES = 32  # an uncalibrated stream is exact for so many frames, and calibrates on them
DENSE, DENSE_FRAMES = 0.8, 15  # where lists computed a larger share than that, so many frames do without
CHECKED_EVERY = 300  # frames after which a bounded stream computes a whole frame, and compares
ZERO_TO_ONE = Pixels()
HISTORY = 10_000  # frames whose time and density are kept for the report


class Stream:
    """A net as a video stream: call it with frame after frame.

    `model` is whatever `pliant.compile` takes, with one argument, the frame. With `exact`, every bit of the results is that of whole
    frames; with `error`, results differ by at most that share of their range, as calibration measures it. `pixels` says how pictures
    become values of the net; with None, frames are given as the net takes them. `thresholds` are limits by the name of a map, set by hand.
    `metric(found, want)` measures the error of results by name, instead of the largest distance relative to the range of a channel.
    """

    def __init__(
        self,
        model: Any,
        *,
        exact: bool = False,
        error: float | None = None,
        size: tuple[int, int] | None = None,
        dims: Mapping[str, Any] | None = None,
        rows: int | None = None,
        pixels: Pixels | None = ZERO_TO_ONE,
        thresholds: Mapping[str, float] | None = None,
        metric: Metric | None = None,
        threads: int | None = None,
        progress: Callable[[str], object] | bool | None = None,
    ) -> None:
        if exact + (error is not None) + bool(thresholds) != 1:
            raise Error(
                "a stream has one of `exact`, `error` and `thresholds`",
                where=caller_span(),
                help="write Stream(model, exact=True) or Stream(model, error=0.01)",
            )
        if error is not None and not 0 < error < 1:
            what = f"the error of a stream is a share of the range of its results, not {error}"
            raise Error(what, where=caller_span(), help="write error=0.01")
        saved = isinstance(model, str | os.PathLike) and os.fspath(model).endswith(".pliant")
        if saved:
            self.program: StreamProgram = load_stream(os.fspath(model), threads)
            if dims or rows is not None or pixels != ZERO_TO_ONE or size not in (None, self.program.size):
                raise Error(
                    f"{os.fspath(model)} is a compiled stream: its size, dims and pixels are fixed",
                    where=caller_span(),
                    facts=[f"its frames have {self.program.size[0]} rows and {self.program.size[1]} columns"],
                    help="leave out size, dims, rows and pixels, or give the model that it was compiled from",
                )
        else:
            self.program = compile_stream(model, size, dims, rows, pixels, threads=threads, progress=progress)
        self.error, self.metric = error, metric
        self.limits = self._by_hand(thresholds or {})
        self.calibration: Calibration | None = None
        if error is not None and self.program.calibration is not None:
            found = _saved_calibration(self.program, os.fspath(model))
            if found.error <= error and found.own_metric == (metric is not None):  # else it says nothing of this error
                self.calibration, self.limits = found, found.limits
        self.last: Last | None = None
        self.history: deque[Last] = deque(maxlen=HISTORY)
        self._state = self.program.new_state()
        self._seen: list[Array] = []  # the first frames of an uncalibrated stream
        self._count = self._dense_frames = 0

    @property
    def size(self) -> tuple[int, int]:
        """The height and the width of a frame."""
        return self.program.size

    def __call__(self, frame: Any) -> Any:
        """Returns the results for a frame: one array, or a tuple if the net has several results.

        Raises ShapeError or TypeError for a frame of another size or dtype; then nothing changes, and the next frame is computed as usual.
        """
        frame = self._array(frame)
        most = ALWAYS_WHOLE if self._state.fresh else self._most()
        start = time.perf_counter()
        found = self.program.step(frame, self._state, self.limits, most)
        ms = (time.perf_counter() - start) * 1e3
        results = {name: y.copy() for name, y in found.items()}
        self.last = self._described(ms, most)
        self._dense_frames = max(0, self._dense_frames - 1)
        if most == ALWAYS_LISTS and self.last.density > DENSE:
            self._dense_frames = DENSE_FRAMES
        self.history.append(self.last)
        self._count += 1
        if self.error is not None and self.calibration is None:
            self._first(frame)
        elif self.error is not None and self._count % CHECKED_EVERY == 0:
            results = self._checked(frame, results)
        return next(iter(results.values())) if len(results) == 1 else tuple(results.values())

    def calibrate(self, frames: Iterable[Any]) -> Calibration:
        """Finds the limits with which the error holds on these frames; returns what was measured. The state begins anew.

        Raises Error for an exact stream, and for fewer than 4 frames.
        """
        if self.error is None:
            raise Error("a stream without an error has nothing to calibrate", where=caller_span(), help="write Stream(model, error=0.01)")
        self.calibration = calibrate(self.program, [self._array(f) for f in frames], self.error, self.metric)
        self.limits, self._seen = self.calibration.limits, []
        self.reset()
        return self.calibration

    def reset(self) -> None:
        """Forgets all frames: the next one is computed as a whole."""
        self._state = self.program.new_state()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a `.pliant` file with the program and its calibration, which `Stream(path, …)` loads; it holds nothing of the frames."""
        self.program.save(path, None if self.calibration is None else as_json(self.calibration))

    def report(self, path: str | os.PathLike[str]) -> None:
        """Writes one page of HTML: time and share of the operations by frame, and the maps with their limits."""
        write_report(path, self.program, self.limits, self.history, None if self.calibration is None else str(self.calibration))

    @property
    def kept_frame(self) -> Array:
        """The frame as the stream keeps it, a copy: each pixel as it was when it moved last."""
        return self._state.tensors[0].copy()

    def _by_hand(self, thresholds: Mapping[str, float]) -> Array:
        """Returns the limits that a user gave; other maps are exact. Raises Error for a map that is not there."""
        limits = self.program.exact
        names = [m.name for m in self.program.maps]
        for name, limit in thresholds.items():
            if name not in names:
                raise Error(f"the net has no map `{name}`", where=caller_span(), facts=["its maps: " + ", ".join(names)])
            if not limit >= 0:
                raise Error(f"the threshold of map `{name}` is {limit}; the least is 0", where=caller_span())
            limits[names.index(name)] = limit
        return limits

    def _array(self, frame: Any) -> Array:
        """Returns a frame as the program takes it: a picture may come without the dim of its batch."""
        array = np.ascontiguousarray(frame)
        return array[None] if array.ndim + 1 == len(self.program.frame.shape) else array

    def _most(self) -> int:
        """Returns the share of pixels above which a map is computed as a whole, as PLIANT_VIDEO says."""
        way = read_settings().video
        if way not in WAYS:
            raise Error(f"PLIANT_VIDEO is `{way}`", help="write PLIANT_VIDEO=auto, lists or dense")
        if way != "auto":
            return ALWAYS_LISTS if way == "lists" else ALWAYS_WHOLE
        # After a whole image all its pixels count as moved, and no limit keeps those of later layers. So a bounded stream lists pixels
        # however many they are, unless it saw that this does not pay.
        return ALWAYS_LISTS if (self.limits >= 0).any() and not self._dense_frames else LISTS

    def _described(self, ms: float, most: int) -> Last:
        """Returns what the last frame took."""
        maps, computed = self.program.maps, self.program.computed(self._state, most)
        whole = tuple(m.name for m, all_ in zip(maps[1:], self.program.whole(self._state, most)[1:], strict=True) if all_)
        return Last(float(computed[0]) / maps[0].pixels, self.program.density(self._state, most), ms, whole)

    def _first(self, frame: Array) -> None:
        """Keeps one of the first frames of an uncalibrated stream, and calibrates when there are enough."""
        self._seen.append(frame.copy())
        if len(self._seen) == FIRST_FRAMES:
            print(f"pliant: calibrating on the first {FIRST_FRAMES} frames", file=sys.stderr)
            print(f"pliant: {self.calibrate(self._seen)}", file=sys.stderr)

    def _checked(self, frame: Array, found: Mapping[str, Array]) -> dict[str, Array]:
        """Computes the whole frame, warns if the error is larger than asked for, and goes on from there; returns the exact results."""
        state: State = self.program.new_state()
        want = {name: y.copy() for name, y in self.program.step(frame, state, self.program.exact).items()}
        assert self.calibration is not None
        error = self.metric(found, want) if self.metric else largest_error(found, want, self.calibration.ranges)
        if self.error is not None and error > self.error:
            print(f"pliant: the error of frame {self._count} is {error:.2%}, more than {self.error:.2%}: calibrate again", file=sys.stderr)
        self._state = state
        return want


def _saved_calibration(program: StreamProgram, path: str) -> Calibration:
    try:
        return from_json(program.calibration, program)
    except ValueError as problem:
        raise ModelFileError(f"{path} is damaged: {problem}") from None
