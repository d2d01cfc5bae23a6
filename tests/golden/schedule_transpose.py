"""elementwise: `out` with vectors along `j`."""

from pliant import Out, Tensor, block, dim, i32, kernel, parallel, vector

n = dim("n")
m = dim("m")


@kernel(scheduled=True)
def transpose(x: Tensor[i32, n, m], out: Out[i32, m, n]) -> None:
    for i in parallel(m):
        for j in vector(n):
            with block("out", "SS", i, j) as (vi, vj):
                out[vi, vj] = x[vj, vi]
