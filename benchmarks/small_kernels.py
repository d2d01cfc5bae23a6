"""The two kernels whose compiling is measured, elementwise and a matrix product, as the text of a program for a fresh process."""

HEAD = """
from pliant import Out, Tensor, block, dim, f32, grid, init, kernel

n = dim("n")
"""
ELEMENTWISE = """
@kernel
def scale(x: Tensor[f32, n, 16, 8], y: Out[f32, n, 16, 8]) -> None:
    for i in range(n):
        for j in range(16):
            for k in range(8):
                y[i, j, k] = x[i, j, k] * 2.0

source = scale
"""
MATMUL = """
@kernel
def matmul(a: Tensor[f32, n, 128], b: Tensor[f32, 128, 256], c: Out[f32, n, 256]) -> None:
    for i, j, k in grid(n, 256, 128):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]

source = matmul
"""
