"""Attributes of `@kernel(…)` in a program's text: a text is not trusted, so each wrong one is refused with its place."""

from __future__ import annotations

import pytest

import pliant
from pliant.support.errors import Error

PROGRAM = """\
@kernel({attributes})
def k(x: Tensor[f32, 8], y: Out[f32, 8]) -> None:
    for i in range(8):
        y[i] = x[i]
"""

WRONG = {
    "unknown": ("speed=3", "takes no `speed`"),
    "flag": ("scheduled=3", "`scheduled` cannot be 3"),
    "counted": ("counted={'y': 'q'}", "`counted` names `q`, which is no parameter"),
    "moved": ("moved=('q',)", "`moved` names `q`, which is no parameter"),
    "layouts": ("layouts={'q': ('lambda i: (i // 4, i % 4)', 0)}", "`layouts` names `q`, which is no parameter"),
    "map": ("layouts={'x': ('import os', 0)}", "`layouts` cannot be"),
    "map_of_unknown": ("layouts={'x': ('lambda i: (j,)', 0)}", "`layouts` cannot be"),
    "stars": ("**3", "`**` takes a dict whose keys are texts"),
    "stars_of_numbers": ("**{1: 2}", "`**` takes a dict whose keys are texts"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_attribute_is_refused(name: str) -> None:
    attributes, message = WRONG[name]
    with pytest.raises(Error) as caught:
        pliant.parse(PROGRAM.format(attributes=attributes))
    assert message in str(caught.value)
    assert "line 1" in str(caught.value) or ":1" in str(caught.value)


def test_right_attributes_are_read() -> None:
    text = PROGRAM.format(attributes="scheduled=True, moved=('x',), layouts={'x': ('lambda i: (i // 4, i % 4)', 0)}")
    assert 'moved=("x",)' in str(pliant.parse(text))
