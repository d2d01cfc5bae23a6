"""not rows: there is no reduction; fallback: threads over `i`."""

from pliant import Out, Tensor, block, dim, i32, kernel, parallel, select

n = dim("n")
m = dim("m")


@kernel(scheduled=True)
def scan(x: Tensor[i32, n, m], out: Out[i32, n, m]) -> None:
    for i in parallel(n):
        for j in range(m):
            with block("out", "SO", i, j) as (vi, vj):
                out[vi, vj] = x[vi, vj] + select(vj > 0, out[vi, vj - 1], 0)
