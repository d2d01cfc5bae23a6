"""ONNX's own test suite: every 24th case of it in a normal run, all of it with PLIANT_LONG=1.

Most cases go through the interpreter of graph programs, which is what operators mean, once more without the dims of their inputs; some are
compiled. A case that fails must be listed
as missing, or be left out for a reason that its error names; one that is listed and passes must be taken off the list.
"""

from __future__ import annotations

import numpy as np
import pytest

import pliant.onnx_backend as backend
from counts import count
from pliant.support.errors import Error

pytest.importorskip("onnx", reason="the suite is part of the package onnx")
import onnx

from onnx_suite import Case, file_cases, missing, node_cases, reason_of, run_case

PARTS = count(24, 1)  # one case of so many is run


def _part(cases: tuple[Case, ...]) -> list[Case]:
    return list(cases[::PARTS])


def _failures(cases: list[Case], interpret: bool) -> list[str]:
    failed = []
    for case in cases:
        try:
            run_case(case, interpret)
        except Exception as error:
            if missing(case.name) is None and reason_of(error) is None:
                failed.append(f"{case.name}: {type(error).__name__}: {str(error).strip()[:300]}")
        else:
            if missing(case.name):
                failed.append(f"{case.name} passes, and is listed as missing")
    return failed


def test_node_cases_by_the_interpreter() -> None:
    assert not _failures(_part(node_cases()), True)


def test_node_cases_compiled() -> None:
    assert not _failures(_part(node_cases())[:: count(20, 1)], False)


def test_node_cases_whose_dims_are_not_known() -> None:
    """Each is right, or refused; and few are refused that are right with the dims."""
    refused, cases = [], _part(node_cases())
    for case in cases:
        try:
            run_case(case, True, free=True)
        except Error as error:
            refused += [case.name] if missing(case.name) is None and reason_of(error) is None else []
        except AssertionError:
            assert missing(case.name), case.name
    assert len(refused) <= len(cases) // 50, refused


@pytest.mark.parametrize("interpret", [True, False], ids=["interpreted", "compiled"])
@pytest.mark.parametrize("name", ["4d_causal_bf16", "4d_padded_kv_bf16", "4d_causal_padded_kv_bf16", "3d_causal_bf16", "4d_causal_fp16"])
def test_attention_in_halves_is_as_exact_as_the_suite(name: str, interpret: bool) -> None:
    """Results in f64 by the standard's own evaluator tell: what the suite expects is no nearer to them, in the mean, than what we give."""
    from onnx.reference import ReferenceEvaluator

    model, data = next(c for c in node_cases() if c.name == f"test_attention_{name}").load()
    inputs, outputs = data[0]
    found = backend.prepare(model, interpret=interpret).run(inputs)[0].astype(np.float64)
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type in (10, 16):
            value.type.tensor_type.elem_type = 11
    names = [i.name for i in model.graph.input]
    wide = [a if a.dtype.kind in "biu" else a.astype(np.float64) for a in inputs]
    exact = ReferenceEvaluator(model).run(None, dict(zip(names, wide, strict=True)))[0]
    assert np.abs(found - exact).mean() <= np.abs(outputs[0].astype(np.float64) - exact).mean()


def test_models_of_the_suite() -> None:
    cases = file_cases()
    assert len(cases) >= 140
    assert not _failures(_part(cases), True)
