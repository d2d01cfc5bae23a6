"""Which of several nested loops threads share where no two of them fuse."""

from __future__ import annotations

import pytest

from pliant.schedule import Schedule
from pliant.schedule.library.parallelize import share
from schedule_kernels import parse


def nest(*extents: str) -> Schedule:
    """A nest of loops, with one between every two, so that those that are shared are no neighbors."""
    names = "abcd"[: len(extents)]
    loops = ", ".join(f"{v}, {v}_" for v in names)
    shape = ", ".join(f"{e}, 2" for e in extents)
    return Schedule(
        parse(f"""
n = dim("n")
m = dim("m")
@kernel
def f(x: Tensor[f32, {shape}], y: Out[f32, {shape}]) -> None:
    for {loops} in grid({shape}):
        with block("y", "{"SS" * len(extents)}", {loops}) as ({", ".join(f"v{v}" for v in loops.split(", "))}):
            y[{", ".join(f"v{v}" for v in loops.split(", "))}] = x[{", ".join(f"v{v}" for v in loops.split(", "))}] * 2.0
""")
    )


@pytest.mark.parametrize(
    ("extents", "inner", "chosen"),
    [
        (("64", "30"), False, "a"),  # one launch of 64 instead of 64 launches of 30
        (("64", "30"), True, "b"),
        (("3", "70"), False, "b"),  # three iterations are too few
        (("2", "28"), True, "b"),
        (("n", "m"), False, "b"),  # a batch may be 1
        (("4", "n", "4"), False, "b"),
        (("4", "16", "n"), False, "b"),
        (("4", "5"), False, "b"),
    ],
)
def test_one_loop_alone(extents: tuple[str, ...], inner: bool, chosen: str) -> None:
    s = nest(*extents)
    loops = s.loops("y")[::2]
    shared = share(s, loops, inner)
    assert shared is loops["abcd".index(chosen)] and shared.loop.kind == "parallel"
