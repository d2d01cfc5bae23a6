"""ONNX's own test suite: a rotating part of it in a normal run, all of it with PLIANT_LONG=1.

Most cases go through the interpreter of graph programs, which is what operators mean; some are compiled. A case that fails must be listed
as missing, or be left out for a reason that its error names; one that is listed and passes must be taken off the list.
"""

from __future__ import annotations

import datetime

import pytest
from counts import count

pytest.importorskip("onnx", reason="the suite is part of the package onnx")
from onnx_suite import Case, file_cases, missing, node_cases, reason_of, run_case

PARTS = count(24, 1)  # one of so many parts is run


def _part(cases: tuple[Case, ...]) -> list[Case]:
    today = datetime.date.today().toordinal()
    return [c for k, c in enumerate(cases) if (k + today) % PARTS == 0]


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


def test_models_of_the_suite() -> None:
    cases = file_cases()
    assert len(cases) >= 140
    assert not _failures(_part(cases), True)
