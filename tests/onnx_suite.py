"""ONNX's own test cases: which there are, how one is run, and why some are left out.

for case in node_cases():
    run_case(case, interpret=True)
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import pliant
import pliant.onnx_backend as backend
from pliant.frontends.onnx.tensors import read_tensor

PILLOW = find_spec("PIL") is not None  # which reads images, and is no part of what tests need

# What the standard has and we leave out, by what the error says: a reason for each.
REASONS = [
    (r"ai\.onnx\.preview\.training", "training"),
    (r"random numbers|dropout in training mode", "random numbers, which the standard leaves open"),
]

# Cases that we should run and do not yet, by what is missing.
_MISSING = {
    "sums of f16 in f32, which the case does not expect": r"test_attention_4d_causal_fp16(_expanded)?",
    "zeros that the case has as 1e-7, more than its own tolerance": r"test_dft_inverse(_opset19)?",
}


def missing(name: str) -> str | None:
    """What a case needs that we do not have yet."""
    return next((what for what, names in _MISSING.items() if re.fullmatch(names, name)), None)


def missing_words() -> tuple[str, ...]:
    """What is missing, in words."""
    return tuple(_MISSING)


@dataclass(frozen=True)
class Case:
    """One case: a model, and its inputs and outputs."""

    name: str
    kind: str
    load: Any
    rtol: float
    atol: float


def _arrays(values: Any) -> list[Any]:
    return [_array(v) for v in values]


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value) if value.data_type in (8, 14, 15) else read_tensor(value, "a test's tensor")
    return [_array(v) for v in value] if isinstance(value, list | tuple) else value


@cache
def node_cases() -> tuple[Case, ...]:
    """The cases of single operators."""
    from onnx.backend.test.case import node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = node.collect_testcases(None)
    return tuple(
        Case(c.name, "node", lambda c=c: (c.model, [tuple(_arrays(part) for part in data) for data in c.data_sets]), c.rtol, c.atol)
        for c in found
    )


@cache
def file_cases() -> tuple[Case, ...]:
    """The cases that are files of the package: simple, pytorch-operator, pytorch-converted."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data"
    return tuple(
        Case(at.name, kind, lambda at=at: _load(at), 1e-3, 1e-5)
        for kind in ("simple", "pytorch-operator", "pytorch-converted")
        for at in sorted((folder / kind).iterdir())
        if (at / "model.onnx").exists()
    )


def _load(at: Path) -> tuple[Any, list[tuple[list[Any], list[Any]]]]:
    model = onnx.load(at / "model.onnx")
    data = []
    for folder in sorted(at.glob("test_data_set*")):
        kinds = []
        for kind, infos in (("input", model.graph.input), ("output", model.graph.output)):
            files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda f: int(f.stem.split("_")[-1]))
            kinds.append([_proto(f, info) for f, info in zip(files, infos, strict=False)])
        data.append((kinds[0], kinds[1]))
    return model, data


def _proto(file: Path, info: Any) -> Any:
    if info.type.WhichOneof("value") == "sequence_type":
        sequence = onnx.SequenceProto.FromString(file.read_bytes())
        return [_array(t) for t in sequence.tensor_values]
    return _array(onnx.TensorProto.FromString(file.read_bytes()))


def without_dims(model: Any) -> Any:
    """The model with inputs of which no dim is known, each under a name of its own."""
    free = onnx.ModelProto()
    free.CopyFrom(model)
    del free.graph.value_info[:]
    for value in (*free.graph.input, *free.graph.output):
        for k, d in enumerate(value.type.tensor_type.shape.dim):
            d.Clear()
            d.dim_param = f"{value.name}_{k}"
    return free


def run_case(case: Case, interpret: bool, free: bool = False) -> None:
    """Raises where a result is not what the case says; where `free`, the model does not know the dims of its inputs."""
    model, data = case.load()
    model = without_dims(model) if free else model
    prepared = backend.prepare(model, interpret=interpret)
    for inputs, outputs in data:
        with np.errstate(all="ignore"):
            found = prepared.run(inputs[: len(prepared.session.inputs)])
        assert len(found) == len(outputs), f"{len(found)} results, {len(outputs)} expected"
        for result, wanted in zip(found, outputs, strict=True):
            compare(result, wanted, case.rtol, case.atol)


def compare(found: Any, wanted: Any, rtol: float, atol: float) -> None:
    """As the suite itself compares: shape, dtype, and values within its tolerance."""
    if isinstance(wanted, list | tuple):
        assert isinstance(found, list) and len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            compare(a, b, rtol, atol)
        return
    wanted = np.asarray(wanted)
    if wanted.dtype.kind in "OUS":
        assert found.shape == wanted.shape and found.dtype == object and found.tolist() == wanted.tolist(), f"{found} {wanted}"
        return
    assert found.shape == wanted.shape, f"shape {found.shape}, {wanted.shape} expected"
    assert found.dtype == wanted.dtype, f"dtype {found.dtype}, {wanted.dtype} expected"
    if found.dtype.name == "bfloat16":
        rtol = max(rtol, 2**-6)
    if found.dtype.kind not in "biu":
        found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def reason_of(error: BaseException) -> str | None:
    """Why a case is left out; None where it should have passed."""
    if not isinstance(error, pliant.Error):
        return None
    text = str(error)
    if "needs the package pillow" in text and not PILLOW:
        return "pillow is not installed"
    return next((reason for pattern, reason in REASONS if re.search(pattern, text)), None)


def outcome(case: Case) -> str | None:
    """None where a case passes in the interpreter; else what is missing, or why it is left out."""
    try:
        run_case(case, interpret=True)
    except Exception as error:
        return missing(case.name) or reason_of(error) or f"{type(error).__name__} in {case.name}"
    return None


def outcomes() -> dict[str, list[str | None]]:
    """What became of every case, by the suite's kinds."""
    found: dict[str, list[str | None]] = {}
    for case in (*node_cases(), *file_cases()):
        found.setdefault(case.kind, []).append(outcome(case))
    return found


def by_accident(error: BaseException) -> bool:
    """Whether a model was refused because the importer failed on it, and not because it says what is wrong: a mistake of ours."""
    return "it cannot be imported: " in str(error)
