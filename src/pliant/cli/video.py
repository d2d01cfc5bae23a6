"""`pliant video CLIP --model MODEL`: runs a net on a video, computing what changed from frame to frame.

pliant video clip.mp4 --model yolov8n.onnx --error 0.01 --compare page.html

Prints frames a second, the share of the operations that was computed, and with `--compare` also the speed-up over whole frames and the
error of the results, measured on the same frames.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import Usage, progress
from .model_options import add_dims, read_dims, single_values
from .output_files import check_place, json_text, written


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `pliant video` to the parser."""
    parser.add_argument("clip", help="a video file, the address of a stream, or a camera")
    parser.add_argument("--model", required=True, help="an .onnx, .pt2 or .pliant file with one input, the frame")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--exact", action="store_true", help="every bit of the results is that of whole frames (the default)")
    way.add_argument("--error", type=float, metavar="SHARE", help="results may differ by this share of their range, for example 0.01")
    parser.add_argument("--size", metavar="ROWSxCOLUMNS", help="size of a frame, if the model leaves it open: 320x320")
    add_dims(parser)
    parser.add_argument("--scale", type=float, default=1 / 255, help="factor of the bytes of a picture (default: 1/255)")
    parser.add_argument("--mean", default="0", metavar="N,N,N", help="subtracted from the scaled values, for all channels or each")
    parser.add_argument("--std", default="1", metavar="N,N,N", help="divisor of the values, for all channels or each")
    parser.add_argument("--order", choices=("rgb", "bgr"), default="rgb", help="order of the channels (default: rgb)")
    parser.add_argument("--calibrate", type=int, default=48, metavar="N", help="frames at the start that limits are found on (default: 48)")
    parser.add_argument("--frames", type=int, metavar="N", help="stop after this many frames")
    parser.add_argument("--compare", metavar="FILE", help="compute whole frames too; draw speed, error and a heat map into this .html file")
    parser.add_argument("--out", metavar="FILE", help="write the clip with the computed pixels tinted to this .mp4 file")
    parser.add_argument("--threads", type=int, help="number of threads")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Runs `pliant video`; returns the exit code. Raises Usage for wrong options."""
    for path, suffix in ((options.compare, ".html"), (options.out, ".mp4")):
        if path:
            check_place(path, suffix)
    if options.calibrate < 4 or (options.frames is not None and options.frames < 2):
        raise Usage("--calibrate takes 4 frames or more, and --frames 2 or more")
    if options.error is not None and not 0 < options.error < 1:
        raise Usage(f"--error is a share of the range of the results, not {options.error}", "write --error 0.01")
    from ..video import Pixels, Stream, frames

    pixels = Pixels(options.scale, _numbers(options.mean, "--mean"), _numbers(options.std, "--std"), options.order)
    stream = Stream(
        options.model,
        exact=options.error is None,
        error=options.error,
        size=_size(options.size),
        dims=single_values(read_dims(options.dim), "video"),
        pixels=pixels,
        threads=options.threads,
        progress=True,
    )
    progress("")
    if options.error is not None and stream.calibration is None:
        progress("calibrating")
        stream.calibrate(frames(options.clip, stream.size, options.calibrate))
        progress("")
    measured = _Run(stream, bool(options.compare), bool(options.out))
    with _clip(options.out) as draw:
        start = time.perf_counter()
        for number, frame in enumerate(frames(options.clip, stream.size, options.frames)):
            draw(frame, measured.frame(frame))
            progress(f"frame {number + 1}: {stream.last}")
        measured.seconds = time.perf_counter() - start
        progress("")
    if not measured.ms:
        raise Usage(f"{options.clip} has no frames")
    facts = measured.facts()
    if options.compare:
        with written(options.compare) as file:
            measured.write_page(file)
    print(json_text(facts) if options.json else _text(facts))
    return 0


def _numbers(text: str, option: str) -> float | tuple[float, ...]:
    """Parses a number, or several with commas between them; raises Usage for anything else."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
        return numbers if len(numbers) > 1 else numbers[0]
    except ValueError:
        raise Usage(f"{option} is `{text}`; numbers with commas between them are expected") from None


def _size(text: str | None) -> tuple[int, int] | None:
    """Parses a size such as 320x640; raises Usage for anything else."""
    if text is None:
        return None
    rows, _, columns = text.partition("x")
    if not rows.isdigit() or not columns.isdigit() or not int(rows) or not int(columns):
        raise Usage(f"--size is `{text}`; rows and columns are expected", "write --size 480x640")
    return int(rows), int(columns)


RANGED = 64  # frames over which the ranges of the results are taken: a comparison of a long clip keeps no more in memory


class _Run:
    """What is measured while a clip runs; with `compare`, the same frames as whole frames too. With `tint`, pixels that moved are told."""

    def __init__(self, stream: Any, compare: bool, tint: bool) -> None:
        import numpy as np

        from ..video.program import ALWAYS_WHOLE

        self.stream, self.compare, self.shown, self.most = stream, compare, compare or tint, ALWAYS_WHOLE
        self.ms: list[float] = []
        self.whole_ms: list[float] = []
        self.densities: list[float] = []
        self.pending: list[tuple[dict[str, Any], dict[str, Any]]] = []  # results of the stream and of whole frames
        self.ranges: dict[str, Any] = {}
        self.errors: list[float] = []
        self.heat = np.zeros(stream.size)
        self.state = stream.program.new_state()
        self.seconds = 0.0

    def frame(self, frame: Any) -> Any:
        """Runs one frame; returns which pixels of it moved, if that is shown."""
        before = self.stream.kept_frame if self.shown else None
        results = self.stream(frame)
        moved = None
        if before is not None:
            rows = self.stream.program.rows
            moved = (before != self.stream.kept_frame).any(tuple(k for k in range(before.ndim) if k not in (rows, rows + 1)))
            self.heat += moved
        self.ms.append(self.stream.last.ms)
        self.densities.append(self.stream.last.density)
        if self.compare:
            start = time.perf_counter()
            found = self.stream.program.step(frame[None], self.state, self.stream.program.exact, self.most)
            self.whole_ms.append((time.perf_counter() - start) * 1e3)
            one = results if isinstance(results, tuple) else (results,)
            self.pending.append((dict(zip(self.stream.program.outputs, one, strict=True)), {name: y.copy() for name, y in found.items()}))
            if self.ranges or len(self.pending) == RANGED:
                self.settle()
        return moved

    def settle(self) -> None:
        """Turns the results that are kept into errors, relative to the ranges of the channels over the first frames."""
        from ..video.calibration import channel_ranges, largest_error

        self.ranges = self.ranges or channel_ranges([want for _, want in self.pending])
        self.errors += [largest_error(found, want, self.ranges) for found, want in self.pending]
        self.pending.clear()

    def facts(self) -> dict[str, Any]:
        """Returns what was measured; the first frame, which is computed as a whole, does not count."""
        ms = self.ms[1:] or self.ms
        mean = sum(ms) / len(ms)
        densities = self.densities[1:] or self.densities
        facts = {
            "frames": len(self.ms),
            "ms": mean,
            "frames_per_second": 1e3 / mean,
            "with_decoding": len(self.ms) / (self.seconds - sum(self.whole_ms) / 1e3),
        }
        facts |= {"density": sum(densities) / len(densities)}
        if self.stream.calibration is not None:
            facts["calibrated_error"] = self.stream.calibration.error
        if self.compare:
            whole = self.whole_ms[1:] or self.whole_ms
            if self.pending:
                self.settle()
            facts |= {"whole_ms": sum(whole) / len(whole), "speedup": sum(whole) / sum(ms)}
            facts |= {"largest_error": max(self.errors), "mean_error": sum(self.errors) / len(self.errors)}
        return facts

    def write_page(self, path: str) -> None:
        """Writes the page of a comparison."""
        from ..support.html_table import html_table
        from ..video.report import curve, heat_map, write_page

        facts = [(name.replace("_", " "), f"{value:.4g}") for name, value in self.facts().items()]
        parts = [
            html_table("Means without the first frame", ("measured", "value"), facts),
            curve("Time of a frame, ms", {"stream": self.ms, "whole frames": self.whole_ms}),
            curve("Error of the results", {"stream": self.errors}),
            curve("Share of the operations", {"stream": self.densities}),
            heat_map("How often each part of the frame was computed", self.heat / len(self.ms)),
        ]
        write_page(path, "Video stream and whole frames", parts)


@contextmanager
def _clip(path: str | None) -> Iterator[Any]:
    """Gives a function that appends a frame to a clip, with some of its pixels tinted; it does nothing without a path."""
    if not path:
        yield lambda frame, moved: None
        return
    import av
    import numpy as np

    with written(path) as file, av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.pix_fmt = "yuv420p"

        def draw(frame: Any, moved: Any) -> None:
            shown = frame.copy()
            shown[moved] = (shown[moved] * 0.5 + np.array([107, 48, 21])).astype(np.uint8)
            height, width = (n // 2 * 2 for n in shown.shape[:2])  # the encoder takes even sizes
            if not stream.codec_context.is_open:
                stream.height, stream.width = height, width
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(shown[:height, :width]), "rgb24")))

        yield draw
        container.mux(stream.encode())


def _text(facts: dict[str, Any]) -> str:
    lines = [
        f"{facts['frames']} frames, {facts['ms']:.2f} ms each: {facts['frames_per_second']:.0f} a second, "
        f"{facts['with_decoding']:.0f} a second with decoding",
        f"{facts['density']:.1%} of the operations were computed",
    ]
    if "calibrated_error" in facts:
        lines.append(f"the error of held-out frames was {facts['calibrated_error']:.2%} of the range of the results")
    if "speedup" in facts:
        error = facts["largest_error"]
        shown = (
            "no bit differs" if error == 0 else f"the largest error is {error:.2%} of the range" if math.isfinite(error) else "not finite"
        )
        lines.append(f"whole frames take {facts['whole_ms']:.2f} ms: {facts['speedup']:.2f} times as long; {shown}")
    return "\n".join(lines)
