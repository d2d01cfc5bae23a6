"""The verifier sees that the parts of a partitioned loop write elements of their own."""

from __future__ import annotations

from pliant.loop.verify import verify
from schedule_kernels import parse

REST = """
n = dim("n")
@kernel
def rest(x: Tensor[f32, n, 2], c: Out[f32, n, 2]) -> None:
    for i, j in grid(n, 2):
        with block("z", "SS", i, j) as (vi, vj):
            c[vi, vj] = 0.0
    for i_0 in serial((n + 7) // 8):
        for i_1 in serial(min((n - i_0 * 8) // 3, 2), min((n - i_0 * 8 + 2) // 3, 2)):
            for i_2 in serial(3):
                with block("y", "SSS", i_0, i_1, i_2) as (a, b, d):
                    where(a * 8 + b * 3 + d < n)
                    c[a * 8 + b * 3 + d, 1] = x[a * 8 + b * 3 + d, 0]
"""


def test_a_loop_that_begins_at_a_case_distinction() -> None:
    verify(parse(REST))
