"""rows: `top`, `e`, `total`, `out` together, one row after the other, sums in 16 lanes."""

from pliant import Out, Tensor, alloc, block, dim, exp, f32, inf, kernel, parallel, unroll, vector, where

n = dim("n")
m = dim("m")


@kernel(scheduled=True)
def softmax(x: Tensor[f32, n, m], out: Out[f32, n, m]) -> None:
    top = alloc((n,), f32)
    e = alloc((n, m), f32)
    total = alloc((n,), f32)
    for i in parallel(n):
        top_lanes = alloc((1, 16), f32, scope="register")
        for k_1 in vector(16):
            with block("top_init", "SS", i, k_1) as (vi, vk_1):
                top_lanes[0, vk_1] = -inf
        for k_0 in range(m // 16):
            for k_1 in vector(16):
                with block("top", "SRS", i, k_0, k_1) as (vi, vk_0, vk_1):
                    top_lanes[0, vk_1] = max(top_lanes[0, vk_1], x[vi, vk_0 * 16 + vk_1])
        for k_0 in range(m // 16, (m + 15) // 16):
            for k_1 in vector(16):
                with block("top_rest", "SRS", i, k_0, k_1) as (vi, vk_0, vk_1):
                    where(vk_0 * 16 + vk_1 < m)
                    top_lanes[0, vk_1] = max(top_lanes[0, vk_1], x[vi, vk_0 * 16 + vk_1])
        top_tile = alloc((1,), f32, scope="register")
        with block("top_sum_init", "S", i) as vi:
            top_tile[0] = -3e+38
        for k_1 in unroll(16):
            with block("top_sum", "SR", i, k_1) as (vi, vk_1):
                top_tile[0] = max(top_tile[0], top_lanes[0, vk_1])
        with block("top_sum_write", "S", i) as vi:
            top[vi] = top_tile[0]
        for vj in vector(m):
            with block("e", "SS", i, vj) as (vi, vj_1):
                e[vi, vj_1] = exp(x[vi, vj_1] - top[vi])
        total_lanes = alloc((1, 16), f32, scope="register")
        for k_1 in vector(16):
            with block("total_init", "SS", i, k_1) as (vi, vk_1):
                total_lanes[0, vk_1] = 0.0
        for k_0 in range(m // 16):
            for k_1 in vector(16):
                with block("total", "SRS", i, k_0, k_1) as (vi, vk_0, vk_1):
                    total_lanes[0, vk_1] += e[vi, vk_0 * 16 + vk_1]
        for k_0 in range(m // 16, (m + 15) // 16):
            for k_1 in vector(16):
                with block("total_rest", "SRS", i, k_0, k_1) as (vi, vk_0, vk_1):
                    where(vk_0 * 16 + vk_1 < m)
                    total_lanes[0, vk_1] += e[vi, vk_0 * 16 + vk_1]
        total_tile = alloc((1,), f32, scope="register")
        with block("total_sum_init", "S", i) as vi:
            total_tile[0] = 0.0
        for k_1 in unroll(16):
            with block("total_sum", "SR", i, k_1) as (vi, vk_1):
                total_tile[0] += total_lanes[0, vk_1]
        with block("total_sum_write", "S", i) as vi:
            total[vi] = total_tile[0]
        for j in vector(m):
            with block("out", "SS", i, j) as (vi, vj):
                out[vi, vj] = e[vi, vj] / total[vi]
