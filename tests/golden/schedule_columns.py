"""rows: `out` together, one row after the other, sums in 16 lanes."""

from pliant import Out, Tensor, block, dim, i32, init, kernel, parallel

n = dim("n")
m = dim("m")


@kernel(scheduled=True)
def columns(x: Tensor[i32, n, m], out: Out[i32, m]) -> None:
    for j in parallel(m):
        for k in range(n):
            with block("out", "SR", j, k) as (vj, vk):
                with init():
                    out[vj] = -100
                out[vj] = max(out[vj], x[vk, vj])
