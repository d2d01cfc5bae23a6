from pliant import Out, Tensor, block, dim, f32, grid, init, kernel

n = dim("n", max=4096, multiple_of=8)


@kernel
def matmul(a: Tensor[f32, n, 128], b: Tensor[f32, 128, 256], c: Out[f32, n, 256]) -> None:
    for i, j, k in grid(n, 256, 128):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]
