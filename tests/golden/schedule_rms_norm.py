"""rows: `ss`, `out` together, one row after the other, sums in 16 lanes."""

from pliant import Out, Tensor, alloc, block, dim, f32, kernel, parallel, rsqrt, unroll, vector, where

n = dim("n")


@kernel(scheduled=True)
def rms_norm(x: Tensor[f32, n, 72], w: Tensor[f32, 72], out: Out[f32, n, 72]) -> None:
    ss = alloc((n,), f32)
    for i in parallel(n):
        ss_lanes = alloc((1, 16), f32, scope="register")
        for k_1 in vector(16):
            with block("ss_init", "SS", i, k_1) as (vi, vk_1):
                ss_lanes[0, vk_1] = 0.0
        for k_0 in range(4):
            for k_1 in vector(16):
                with block("ss", "SRS", i, k_0, k_1) as (vi, vk_0, vk_1):
                    ss_lanes[0, vk_1] += x[vi, vk_0 * 16 + vk_1] * x[vi, vk_0 * 16 + vk_1]
        for k_0 in range(4, 5):
            for k_1 in vector(16):
                with block("ss_rest", "SRS", i, k_0, k_1) as (vi, vk_0, vk_1):
                    where(vk_0 * 16 + vk_1 < 72)
                    ss_lanes[0, vk_1] += x[vi, vk_0 * 16 + vk_1] * x[vi, vk_0 * 16 + vk_1]
        ss_tile = alloc((1,), f32, scope="register")
        with block("ss_sum_init", "S", i) as vi:
            ss_tile[0] = 0.0
        for k_1 in unroll(16):
            with block("ss_sum", "SR", i, k_1) as (vi, vk_1):
                ss_tile[0] += ss_lanes[0, vk_1]
        with block("ss_sum_write", "S", i) as vi:
            ss[vi] = ss_tile[0]
        for j in vector(72):
            with block("out", "SS", i, j) as (vi, vj):
                out[vi, vj] = x[vi, vj] * rsqrt(ss[vi] * 0.013888889 + 1e-05) * w[vj]
