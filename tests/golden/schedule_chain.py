"""inlined `t`, `u`; elementwise: `out` with vectors along `j`."""

from pliant import Out, Tensor, block, dim, f32, kernel, parallel, vector

n = dim("n")
m = dim("m")


@kernel(scheduled=True)
def chain(x: Tensor[f32, n, m], y: Tensor[f32, m], out: Out[f32, n, m]) -> None:
    for i in parallel(n):
        for j in vector(m):
            with block("out", "SS", i, j) as (vi, vj):
                out[vi, vj] = max(x[vi, vj] * 2.0 + y[vj], 0.0)
