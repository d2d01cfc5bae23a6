from pliant import State, Tensor, dim, f32, function, i64, ops

pages = dim("pages")
t = dim("t", max=2048)


@function
def state(
    cache: State[f32, pages, 8],
    x: Tensor[f32, t, 8],
    place: i64,
) -> tuple[State[f32, pages, 8], Tensor[f32, t, 8]]:
    scalar = ops.scalar(value=pages // 2)  # i64 = pages // 2
    cond = ops.less(place, scalar)  # bool_
    if cond:
        cache_1 = append(cache, x, place)  # State[f32, pages, 8]
        cache_3, y_1 = cache_1, x
    else:
        const = ops.constant(2.0, dtype=f32)  # Tensor[f32]
        mul = ops.mul(x, const)  # Tensor[f32, t, 8]
        cache_2 = append(cache, mul, i64(0))  # State[f32, pages, 8]
        y = ops.neg(x)  # Tensor[f32, t, 8]
        cache_3, y_1 = cache_2, y
    scalar_1 = ops.scalar(value=i64(0))  # i64
    cache_5, y_3, i_1 = cache_3, y_1, scalar_1
    while True:
        scalar_2 = ops.scalar(value=t)  # i64 = t
        cond_1 = ops.less(i_1, scalar_2)  # bool_
        if not cond_1:
            break
        cache_4 = append(cache_5, y_3, t * 2)  # State[f32, pages, 8]
        const_1 = ops.constant(0.0, dtype=f32)  # Tensor[f32]
        greater = ops.greater(y_3, const_1)  # Tensor[bool_, t, 8]
        const_2 = ops.constant(0.5, dtype=f32)  # Tensor[f32]
        y_2 = ops.where(greater, y_3, const_2)  # Tensor[f32, t, 8]
        scalar_3 = ops.scalar(value=i64(1))  # i64
        i = ops.add(i_1, scalar_3)  # i64
        cache_5, y_3, i_1 = cache_4, y_2, i
    return cache_5, y_3
