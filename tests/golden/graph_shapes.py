from pliant import Tensor, dim, f16, f32, function, i32, i64, ops

t = dim("t", max=2048)
n = dim("n", max=4096, multiple_of=8)


@function
def shapes(
    x: Tensor[f32, t, 4, 8],
    p: Tensor[i64, t],
    ids: Tensor[i32, n],
    table: Tensor[f16, 100, 32],
) -> tuple[Tensor[f32, t, 4, 8], Tensor[f32, n + t, 32]]:
    const = ops.constant([1.0, 0.1, 0.01, 0.001], dtype=f32)  # Tensor[f32, 4]
    r = ops.rotary_embedding(x, p, const)  # Tensor[f32, t, 4, 8]
    take = ops.take(table, ids, axis=0)  # Tensor[f16, n, 32]
    rows = ops.cast(take, dtype=f32)  # Tensor[f32, n, 32]
    reshape = ops.reshape(r, shape=[t, 32])  # Tensor[f32, t, 32]
    both = ops.concat([reshape, rows], axis=0)  # Tensor[f32, n + t, 32]
    slice_1 = ops.slice(both, axis=0, start=0, stop=t, step=1)  # Tensor[f32, t, 32]
    slice_1_1 = ops.slice(slice_1, axis=1, start=0, stop=16, step=2)  # Tensor[f32, t, 8]
    s = ops.permute(slice_1_1, axes=[1, 0])  # Tensor[f32, 8, t]
    softmax = ops.softmax(r, axis=1)  # Tensor[f32, t, 4, 8]
    sum_1 = ops.sum(s, axis=[0, 1], keepdims=False)  # Tensor[f32]
    add = ops.add(softmax, sum_1)  # Tensor[f32, t, 4, 8]
    full = ops.full(shape=[32], value=f32(1.0))  # Tensor[f32, 32]
    rms_norm = ops.rms_norm(both, full, eps=1e-05)  # Tensor[f32, n + t, 32]
    return add, rms_norm
