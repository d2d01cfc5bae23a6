from pliant import Tensor, dim, f32, function, ops

n = dim("n", max=4096, multiple_of=8)


@function
def mlp(
    x: Tensor[f32, n, 64],
    gate: Tensor[f32, 64, 128],
    up: Tensor[f32, 64, 128],
    down: Tensor[f32, 128, 64],
) -> Tensor[f32, n, 64]:
    matmul = ops.matmul(x, gate)  # Tensor[f32, n, 128]
    silu = ops.silu(matmul)  # Tensor[f32, n, 128]
    matmul_1 = ops.matmul(x, up)  # Tensor[f32, n, 128]
    mul = ops.mul(silu, matmul_1)  # Tensor[f32, n, 128]
    matmul_2 = ops.matmul(mul, down)  # Tensor[f32, n, 64]
    add = ops.add(x, matmul_2)  # Tensor[f32, n, 64]
    return add
