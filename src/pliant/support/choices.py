"""Marks for conditions and functions that only choose among right programs: none of their answers can make a result wrong.

    if worth(len(users) == 1):          # compute_inline is legal either way, and checks by itself that it is
        s.compute_inline(name)

A reader sees at once which conditions a result depends on, and which are about speed. The mark is tested: `answering` lets a test give
other answers, and every program has to keep its meaning (`tests/property/test_random_choices.py`). So `tools/mutants.py` changes nothing
in a marked condition but what could end in an internal error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])
_answers: list[Callable[[bool], bool]] = []  # of tests; the last one answers


def worth(condition: bool) -> bool:
    """Return the condition: whether something legal is worth doing. The program is as right with the opposite answer.

    Inside of `answering`, its function answers instead.
    """
    return _answers[-1](condition) if _answers else condition


def heuristic(function: F) -> F:
    """Return the function itself; marks one that estimates a cost, guides a search, or proposes a size.

    Any answer of its type gives a right program.
    """
    return function


@contextmanager
def answering(answer: Callable[[bool], bool]) -> Iterator[None]:
    """Context manager: inside of it, `answer(condition)` replaces every condition under `worth`, for tests."""
    _answers.append(answer)
    try:
        yield
    finally:
        _answers.pop()
