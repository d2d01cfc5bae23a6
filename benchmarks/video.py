"""Streams against whole frames: share of the operations, speed-up and error of a model on clips, and on clips made from them.

    python benchmarks/video.py model.onnx clip.mp4 [more.mp4 …] --size 320x320 [--error 0.01,0.03,0.1] [--frames 200] [--json]

For each clip: as it is, frozen, cut, fading, with noise, and shaken; exact, and bounded by each error; beside whole frames of the same
program (`whole`), our compiled model with all its algorithms (`dense`), onnxruntime if it is installed, and a null stream that repeats the
first answer, whose error shows what an error means on this clip. "Of movement" is the mean error divided by the mean movement of the
results from frame to frame. With `--logit`, the results are probabilities of two classes, and the error is that of their logit.

Times are means of all frames but the first, without decoding. Nothing else should run at the same time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

import pliant
from pliant.video import Pixels, Stream, frames
from pliant.video.calibration import channel_ranges, largest_error
from pliant.video.program import ALWAYS_LISTS, ALWAYS_WHOLE, LISTS, State

Array = np.ndarray[Any, Any]
CALIBRATED = 48  # frames


def clips(pictures: Sequence[Array]) -> dict[str, list[Array]]:
    """The clip as it is, and others made from it."""
    rng = np.random.default_rng(0)
    n = len(pictures)
    fade = [np.clip(p * (1 - 0.4 * k / n), 0, 255).astype(np.uint8) for k, p in enumerate([pictures[0]] * n)]
    noise = [np.clip(pictures[0] + rng.normal(0, 2, pictures[0].shape), 0, 255).astype(np.uint8) for _ in range(n)]
    shake = [np.roll(p, (int(rng.integers(-3, 4)), int(rng.integers(-3, 4))), (0, 1)) for p in pictures]
    cut = [pictures[k if k // 10 % 2 else (k * 7) % n] for k in range(n)]
    return {"clip": list(pictures), "frozen": [pictures[0]] * n, "fade": fade, "noise": noise, "shake": shake, "cut": cut}


def timed(run: Callable[[Array], Mapping[str, Array]], pictures: Sequence[Array]) -> tuple[float, list[dict[str, Array]]]:
    """The mean milliseconds of a frame, without the first one, and the results of all."""
    results, ms = [], []
    for picture in pictures:
        start = time.perf_counter()
        found = run(picture)
        ms.append((time.perf_counter() - start) * 1e3)
        results.append({name: np.array(y) for name, y in found.items()})
    return float(np.mean(ms[1:])), results


def logit_distance(a: Mapping[str, Array], b: Mapping[str, Array]) -> float:
    """The distance of the logits of two probabilities."""
    first, second = (np.log(y[1] / y[0]) for y in (np.asarray(next(iter(r.values())), np.float64).ravel() for r in (a, b)))
    return float(abs(first - second))


def range_distance(ranges: Mapping[str, Array]) -> Callable[[Mapping[str, Array], Mapping[str, Array]], float]:
    """The largest distance of an element, relative to the range of its channel."""
    return lambda a, b: largest_error(a, b, ranges)


def measure(model: str, clip: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of a clip."""
    pixels = Pixels(options.scale, _numbers(options.mean), _numbers(options.std), options.order)
    exact = Stream(model, exact=True, size=options.size, pixels=pixels, threads=options.threads)
    program = exact.program
    pictures = list(frames(clip, program.size, options.frames))
    dense = _dense(model, pixels, options, program.frame)
    rows: list[dict[str, Any]] = []
    for name, shown in clips(pictures).items():
        state = program.new_state()
        whole_ms, want = timed(lambda p, s=state: program.step(p[None], s, program.exact, ALWAYS_WHOLE), shown)  # type: ignore[misc]
        distance = logit_distance if options.logit else range_distance(channel_ranges(want))
        movement = float(np.mean([distance(a, b) for a, b in pairwise(want)]))

        def row(way: str, ms: float, found: Sequence[Mapping[str, Array]], density: float | None = None) -> None:
            errors = [distance(a, b) for a, b in zip(found, want, strict=True)]  # noqa: B023
            relative = float(np.mean(errors)) / movement if movement else 0.0  # noqa: B023
            facts = {"clip": clip, "made": name, "way": way, "ms": ms, "speedup": whole_ms / ms, "density": density}  # noqa: B023
            rows.append({**facts, "largest_error": max(errors), "mean_error": float(np.mean(errors)), "of_movement": relative})
            print(_line(rows[-1]), file=sys.stderr, flush=True)

        row("whole", whole_ms, want, 1.0)
        row("null", 1e-3, [want[0]] * len(want))
        for peer, run in dense.items():
            row(peer, *timed(run, shown))
        for way, most in (("exact", LISTS), ("exact, lists", ALWAYS_LISTS)):
            state, counts = program.new_state(), []

            def step(p: Array, state: Any = state, most: int = most, counts: list[Array] = counts) -> Mapping[str, Array]:
                found = program.step(p[None], state, program.exact, most)
                counts.append(state.counts.copy())
                return found

            ms, found = timed(step, shown)
            row(way, ms, found, float(np.mean([program.density(State([], c), most) for c in counts[1:]])))
        for error in options.error if name in ("clip", "fade", "cut") else ():
            # An error of the logit is asked for through the metric, as a share of what a bounded stream may have: one half.
            metric = (lambda a, b, most=error: logit_distance(a, b) / most / 2) if options.logit else None
            asked = 0.5 if options.logit else error
            stream = Stream(model, error=asked, size=options.size, pixels=pixels, threads=options.threads, metric=metric)
            stream.calibrate(pictures[:CALIBRATED])
            outputs = list(program.outputs)

            def bounded(p: Array, stream: Stream = stream, outputs: list[str] = outputs) -> Mapping[str, Array]:
                y = stream(p)
                return dict(zip(outputs, y if isinstance(y, tuple) else (y,), strict=True))

            ms, found = timed(bounded, shown)
            row(f"error {error:g}", ms, found, float(np.mean([x.density for x in stream.history][1:])))
    return rows


def _dense(model: str, pixels: Pixels, options: argparse.Namespace, frame: Any) -> dict[str, Callable[[Array], Mapping[str, Array]]]:
    """Our compiled model with all algorithms, and onnxruntime; the conversion of the picture is not in their time."""
    program = pliant.from_onnx(model) if model.endswith(".onnx") else None
    if program is None:
        return {}
    from pliant.video.program import fixed

    fixed_program, rows = fixed(program, options.size)
    ours = pliant.compile(fixed_program, threads=options.threads)
    first = rows == len(fixed_program.entry.params[0].tensor.shape) - 2

    def tensor(p: Array) -> Array:
        values = (p.astype(np.float32) * np.float32(pixels.scale) - np.float32(pixels.mean)) / np.float32(pixels.std)
        values = values[:, :, ::-1] if pixels.order == "bgr" else values
        return np.ascontiguousarray(np.moveaxis(values, 2, 0) if first else values)[None]

    cache: dict[int, Array] = {}

    def prepared(p: Array) -> Array:
        if id(p) not in cache:
            cache.clear()
            cache[id(p)] = tensor(p)
        return cache[id(p)]

    names = [o.name for o in ours.interface.outputs]

    def run(p: Array) -> Mapping[str, Array]:
        y = ours(prepared(p))
        return dict(zip(names, y if isinstance(y, tuple) else (y,), strict=True))

    found: dict[str, Callable[[Array], Mapping[str, Array]]] = {"dense": run}
    try:
        import onnxruntime
    except ImportError:
        return found
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads or 0
    session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    found["onnxruntime"] = lambda p: dict(zip(names, session.run(None, {name: prepared(p)}), strict=True))
    return found


def _line(row: Mapping[str, Any]) -> str:
    density = "" if row["density"] is None else f"{row['density']:.3f}"
    error = f"error {row['largest_error']:.4f}, of movement {row['of_movement']:.2f}"
    return f"{row['made']:8} {row['way']:14} {row['ms']:9.3f} ms {row['speedup']:7.2f}x  {density:6} {error}"


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(x) for x in text.split(","))


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, and prints a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("clips", nargs="+")
    parser.add_argument("--size", type=lambda t: tuple(map(int, t.split("x"))))
    parser.add_argument("--error", type=_numbers, default=(0.01, 0.03, 0.1))
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--scale", type=float, default=1 / 255)
    parser.add_argument("--mean", default="0")
    parser.add_argument("--std", default="1")
    parser.add_argument("--order", choices=("rgb", "bgr"), default="rgb")
    parser.add_argument("--logit", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    rows = [row for clip in options.clips for row in measure(options.model, clip, options)]
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
