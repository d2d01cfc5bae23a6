from pliant import InOut, Out, Tensor, alloc, dim, f32, grid, kernel

n = dim("n", max=128)
m = dim("m", max=128)
r = dim("r")


@kernel
def flatten(x: Tensor[f32, n, m], y: Out[f32, n * m]) -> None:
    for i, j in grid(n, m):
        y[i * m + j] = x[i, j]


@kernel
def scale(x: InOut[f32, r], by: f32) -> None:
    for i in range(r):
        x[i] *= by


@kernel
def scaled(x: Tensor[f32, n, m], y: Out[f32, n * m]) -> None:
    t = alloc((n * m,), f32)
    flatten(x, t)
    scale(t, 0.5)
    flatten(x, y)
    for i in range(n * m):
        y[i] = y[i] + t[i]
