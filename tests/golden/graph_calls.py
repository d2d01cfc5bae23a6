from pliant import Tensor, bool_, dim, f32, function, i32, ops

m = dim("m")
t = dim("t", max=2048)
n = dim("n", max=4096, multiple_of=8)


@function
def norm(x: Tensor[f32, m, 64], w: Tensor[f32, 64], eps: f32) -> Tensor[f32, m, 64]:
    mul = ops.mul(x, x)  # Tensor[f32, m, 64]
    mean = ops.mean(mul, axis=[1], keepdims=True)  # Tensor[f32, m, 1]
    add = ops.add(mean, eps)  # Tensor[f32, m, 1]
    rsqrt = ops.rsqrt(add)  # Tensor[f32, m, 1]
    mul_1 = ops.mul(x, rsqrt)  # Tensor[f32, m, 64]
    mul_2 = ops.mul(mul_1, w)  # Tensor[f32, m, 64]
    return mul_2


@function
def calls(
    x: Tensor[f32, t, 64],
    w: Tensor[f32, 64],
    other: Tensor[f32, n],
) -> tuple[Tensor[f32, t, 64], Tensor[i32, t], bool_]:
    scalar = ops.scalar(value=f32(1e-05))  # f32
    y = norm(x, w, scalar)  # Tensor[f32, t, 64]
    z = ops.match_cast(other, Tensor[f32, 64])  # Tensor[f32, 64]; checked: (n == 64)
    k = ops.call_library("find_best", [y, z], out=Tensor[i32, t])  # Tensor[i32, t]
    add = ops.add(y, z)  # Tensor[f32, t, 64]
    scalar_1 = ops.scalar(value=n > 8)  # bool_ = n > 8
    return add, k, scalar_1
