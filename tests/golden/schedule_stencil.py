"""not rows: block `out` does not go row by row over what is reduced; elementwise: `out` as one flat vector loop in chunks of 1024; fallback: threads over `i`."""

from pliant import Out, Tensor, alloc, block, dim, i32, init, kernel, parallel, vector

n = dim("n")


@kernel(scheduled=True)
def stencil(x: Tensor[i32, n + 4], w: Tensor[i32, 3], out: Out[i32, n]) -> None:
    t = alloc((n + 2,), i32)
    for i in parallel(n + 2):
        for k in range(3):
            with block("t", "SR", i, k) as (vi, vk):
                with init():
                    t[vi] = 1
                t[vi] += x[vi + vk] * w[vk]
    for i_0 in parallel(n // 1024):
        for i_1 in vector(1024):
            with block("out", "S", i_0 * 1024 + i_1) as vi:
                out[vi] = t[vi] + t[vi + 2]
    for i_r in vector(n % 1024):
        with block("out_rest", "S", n // 1024 * 1024 + i_r) as vi:
            out[vi] = t[vi] + t[vi + 2]
