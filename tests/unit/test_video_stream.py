"""Streams as users have them: exact and bounded, calibration, what is told of a frame, files, the report, the command, wrong input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, function, ops
from pliant.cli import main
from pliant.support.errors import Error, ModelFileError, ShapeError
from pliant.video import Pixels, Stream, frames

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(1)
W1, W2, W3 = (RNG.standard_normal(s).astype(np.float32) / 4 for s in ((8, 3, 3, 3), (8, 8, 3, 3), (8, 5)))
SIZE = (24, 32)
h, w = dim("h"), dim("w")


@function
def net(x: Tensor[f32, 1, 3, h, w]) -> Tensor[f32, 1, 5]:
    y = ops.relu(ops.conv(ops.relu(ops.conv(x, W1, padding=1, stride=2)), W2, padding=1))
    return ops.matmul(ops.mean(y, axis=[2, 3]), W3)


def by_numpy(picture: Array) -> Array:
    """The net in float64: windows, sums, a mean."""
    x = np.moveaxis(picture.astype(np.float64) / 255, 2, 0)
    for weight, stride in ((W1, 2), (W2, 1)):
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (1, 1), (1, 1))), (3, 3), axis=(1, 2))[:, ::stride, ::stride]
        x = np.maximum(np.einsum("chwij,ocij->ohw", windows, weight.astype(np.float64)), 0)
    return x.mean((1, 2)) @ W3


def clip(count: int, noise: int = 2) -> list[Array]:
    """Pictures of a square that moves over a noisy background."""
    rng = np.random.default_rng(5)
    ground = rng.integers(40, 200, (*SIZE, 3))
    pictures = []
    for k in range(count):
        picture = ground + rng.integers(-noise, noise + 1, ground.shape)
        at = k // 2 % 18
        picture[at : at + 6, at : at + 6] = (250, 20, 20)
        pictures.append(np.clip(picture, 0, 255).astype(np.uint8))
    return pictures


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated stream in a file."""
    stream = Stream(net, error=0.2, size=SIZE, threads=1)
    stream.calibrate(clip(24))
    path = tmp_path_factory.mktemp("stream") / "cam.pliant"
    stream.save(path)
    return path


def test_exact_streams_have_the_results_of_numpy(saved: Path) -> None:
    stream = Stream(saved, exact=True, threads=1)
    for picture in clip(5):
        np.testing.assert_allclose(stream(picture)[0], by_numpy(picture), rtol=1e-4, atol=1e-5)
    assert stream.size == SIZE


def test_the_last_frame_is_told(saved: Path) -> None:
    stream = Stream(saved, exact=True, threads=1)
    picture = clip(1)[0]
    stream(picture)
    assert stream.last is not None and stream.last.changed == stream.last.density == 1.0
    stream(picture)
    assert stream.last.changed == stream.last.density == 0.0 and stream.last.whole == ()
    picture = picture.copy()
    picture[9, 11] ^= 255
    stream(picture)
    assert stream.last.changed == 1 / (24 * 32) and 0 < stream.last.density < 0.2
    assert "of the operations" in str(stream.last)


def test_bounded_streams_keep_their_error_and_compute_less(saved: Path) -> None:
    stream = Stream(saved, error=0.2, threads=1)
    assert stream.calibration is not None and stream.calibration.error <= 0.2
    pictures = clip(24)
    want = np.array([by_numpy(p) for p in pictures])
    found = np.array([stream(p)[0] for p in pictures])
    spread = want.max(0) - want.min(0)
    assert (np.abs(found - want) / spread).max() <= 0.2 + 1e-3
    assert np.mean([x.density for x in stream.history]) < 0.9


def test_a_calibration_serves_no_smaller_error_and_no_other_metric(saved: Path) -> None:
    measured = Stream(saved, error=0.2, threads=1).calibration
    assert measured is not None
    for stream in (Stream(saved, error=measured.error / 2, threads=1), Stream(saved, error=0.2, threads=1, metric=lambda a, b: 0.0)):
        assert stream.calibration is None
        stream(clip(1)[0])
        np.testing.assert_allclose(stream(clip(2)[1])[0], by_numpy(clip(2)[1]), rtol=1e-4, atol=1e-5)  # exact until it is calibrated


def test_a_metric_of_the_user_takes_the_place_of_the_largest_distance() -> None:
    stream = Stream(net, error=0.5, size=SIZE, threads=1, metric=lambda found, want: 0.0)
    assert stream.calibrate(clip(8)).error == 0.0
    for picture in clip(3):
        stream(picture)
    assert stream.last is not None and stream.last.density < 0.2, "nothing counts as an error, so nearly nothing is computed"


def test_an_uncalibrated_stream_calibrates_on_its_first_frames(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = Stream(net, error=0.2, size=SIZE, threads=1)
    for k, picture in enumerate(clip(33)):
        np.testing.assert_allclose(stream(picture)[0], by_numpy(picture), rtol=1e-4 if k < 32 else 1.0, atol=1e-5 if k < 32 else 1.0)
    assert stream.calibration is not None
    assert "calibrating on the first 32 frames" in capsys.readouterr().err


def test_a_bounded_stream_is_checked_against_a_whole_frame(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pliant.video.stream.CHECKED_EVERY", 4)
    stream = Stream(saved, error=0.2, threads=1)
    stream.limits = np.full_like(stream.limits, 1e9)  # as if the clip had become another one
    pictures = [*clip(3), np.full((*SIZE, 3), 255, np.uint8)]
    results = [stream(p)[0] for p in pictures]
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_allclose(results[3], by_numpy(pictures[3]), rtol=1e-4, atol=1e-5)
    assert re.search(r"the error of frame 4 is .*%, more than 20.00%", capsys.readouterr().err)


def test_wrong_frames_change_nothing(saved: Path) -> None:
    stream, (first, second) = Stream(saved, exact=True, threads=1), clip(2)
    stream(first)
    for bad in (first[1:], first.astype(np.float32), first[:, :, 0], np.zeros((2, *first.shape), np.uint8)):
        with pytest.raises((ShapeError, TypeError)):
            stream(bad)
    np.testing.assert_allclose(stream(second)[0], by_numpy(second), rtol=1e-4, atol=1e-5)


def test_wrong_options_are_refused(saved: Path) -> None:
    both: list[dict[str, Any]] = [{}, {"exact": True, "error": 0.1}, {"error": 0.1, "thresholds": {"relu": 1.0}}]
    for options in both:
        with pytest.raises(Error, match="a stream has one of"):
            Stream(saved, **options)
    for error in (2.0, float("nan")):
        with pytest.raises(Error, match="is a share of the range"):
            Stream(saved, error=error)
    fixed: list[dict[str, Any]] = [{"size": (8, 8)}, {"pixels": None}, {"rows": 1}, {"dims": {"h": 8}}]
    for options in fixed:
        with pytest.raises(Error, match="its size, dims and pixels are fixed"):
            Stream(saved, exact=True, **options)
    with pytest.raises(Error, match="the net has no map `nothing`"):
        Stream(saved, thresholds={"nothing": 1.0})
    with pytest.raises(Error, match="without an error has nothing to calibrate"):
        Stream(saved, exact=True).calibrate(clip(8))
    with pytest.raises(Error, match="3 frames are too few"):
        Stream(saved, error=0.1).calibrate(clip(3))
    with pytest.raises(Error, match="order of channels"):
        Pixels(order="rbg")
    with pytest.raises(ShapeError, match="mean of the pixels has 2 values"):
        Stream(net, exact=True, size=SIZE, pixels=Pixels(mean=(0.0, 1.0)))


def test_pixels_are_converted_as_numpy_does() -> None:
    stream = Stream(net, exact=True, size=SIZE, threads=1, pixels=Pixels(1 / 127.5, (1.0, 0.9, 0.8), (1.0, 2.0, 4.0), "bgr"))
    tensors = Stream(net, exact=True, size=SIZE, threads=1, pixels=None)
    for picture in clip(3):
        values = (picture.astype(np.float32) / 127.5 - np.float32([1.0, 0.9, 0.8])) / np.float32([1.0, 2.0, 4.0])
        converted = np.ascontiguousarray(np.moveaxis(values[:, :, ::-1], 2, 0))[None]
        np.testing.assert_allclose(stream(picture), tensors(converted), rtol=1e-4, atol=1e-5)


def test_damaged_files_are_refused(saved: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.pliant"
    pliant.compile(net, dims={"h": 8, "w": 8}).save(plain)
    with pytest.raises(ModelFileError, match="is no video stream"):
        Stream(plain, exact=True)
    program = Stream(saved, exact=True).program
    function, described = program.function, program.function.attrs["video"]
    first, *others = described["maps"]
    changes: list[dict[str, Any]] = [
        {"outputs": [{"name": "y", "place": 9}]},
        {"outputs": []},
        {"rows": "1"},
        {"maps": others},
        {"maps": [{**first, "rows": 7}, *others]},
        {"maps": [{**first, "shape": [1, -24, 32, 3]}, *others]},
        {"maps": [{**first, "operations": 1e300}, *others]},
        {"maps": None},
    ]
    for change in changes:
        program.function = function.with_(attrs={**function.attrs, "video": {**described, **change}})
        program.save(tmp_path / "damaged.pliant")
        with pytest.raises(ModelFileError, match="is damaged: the description of its maps"):
            Stream(tmp_path / "damaged.pliant", exact=True)
    program.function = function
    measured = described["calibration"]
    for change in ({"limits": [1.0]}, {"limits": "1"}, {"ranges": {}}, {"ranges": {"result_0": [1.0, 2.0]}}, {"error": None}):
        program.save(tmp_path / "damaged.pliant", {**measured, **change})
        with pytest.raises(ModelFileError, match="is damaged: its calibration"):
            Stream(tmp_path / "damaged.pliant", error=0.2)


def test_the_report_names_maps_and_limits(saved: Path, tmp_path: Path) -> None:
    stream = Stream(saved, error=0.2, threads=1)
    for picture in clip(4):
        stream(picture)
    stream.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert all(f">{m.name}</td>" in page for m in stream.program.maps) and "4 frames" in page


def test_dense_and_lists_are_forced_by_the_environment(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = clip(3)
    stream = Stream(saved, exact=True, threads=1)
    for way, whole in (("dense", len(stream.program.maps) - 1), ("lists", 0)):
        monkeypatch.setenv("PLIANT_VIDEO", way)
        stream.reset()
        for picture in pictures:
            np.testing.assert_allclose(stream(picture)[0], by_numpy(picture), rtol=1e-4, atol=1e-5)
        assert stream.last is not None and len(stream.last.whole) == whole
    monkeypatch.setenv("PLIANT_VIDEO", "fast")
    with pytest.raises(Error, match="PLIANT_VIDEO is `fast`"):
        stream(pictures[0])


# Files and the command, with PyAV.


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    av = pytest.importorskip("av", reason="PyAV is not installed")
    path = tmp_path_factory.mktemp("film") / "clip.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.height, stream.width = 48, 64
        for picture in clip(12):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.repeat(np.repeat(picture, 2, 0), 2, 1), "rgb24")))
        container.mux(stream.encode())
    return path


def test_frames_have_the_size_that_is_asked_for(film: Path, tmp_path: Path) -> None:
    assert [p.shape for p in frames(film, size=SIZE)] == [(24, 32, 3)] * 12
    assert [p.shape for p in frames(film, limit=2)] == [(48, 64, 3)] * 2
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(film.read_bytes()[:100])
    for path in (broken, tmp_path / "missing.mp4"):
        with pytest.raises(ModelFileError, match="cannot be read"):
            list(frames(path))


def test_the_command_compares_with_whole_frames(film: Path, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, out = tmp_path / "page.html", tmp_path / "out.mp4"
    command = ["video", str(film), "--model", str(saved), "--compare", str(page), "--out", str(out), "--json"]
    assert main(command) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["frames"] == 12 and facts["largest_error"] == 0.0 and 0 < facts["density"] <= 1
    assert "How often each part of the frame was computed" in page.read_text()
    assert len(list(frames(out))) == 12
    assert main([*command[:4], "--size", "8"]) == 2
    assert "rows and columns are expected" in capsys.readouterr().err


def test_without_pyav_the_help_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(Error, match="reading videos needs PyAV"):
        next(frames("clip.mp4"))
