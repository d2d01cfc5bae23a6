"""matmul: `c` in tiles of 4x24 in registers."""

from pliant import Out, Tensor, alloc, block, dim, f32, fma, kernel, parallel, select, unroll, vector

h = dim("h")
n = dim("n")


@kernel(scheduled=True)
def batched(a: Tensor[f32, h, n, 7], b: Tensor[f32, h, 7, 24], c: Out[f32, n, h, 24]) -> None:
    for g_j_0 in parallel(h):
        for i_0 in range(n // 4 - select(n >= 4 and n % 4 > 0 and n % 4 < 3, 1, 0)):
            c_tile = alloc((4, 1, 24), f32, scope="register")
            for i_1 in unroll(4):
                for j_1 in vector(24):
                    with block("c_init", "SSSS", g_j_0, i_0, i_1, j_1) as (vg, vi_0, vi_1, vj_1):
                        c_tile[vi_1, 0, vj_1] = 0.0
            for k in range(7):
                for i_1 in unroll(4):
                    for j_1 in vector(24):
                        with block("c", "SSRSS", g_j_0, i_0, k, i_1, j_1) as (vg, vi_0, vk, vi_1, vj_1):
                            c_tile[vi_1, 0, vj_1] = fma(a[vg, vi_0 * 4 + vi_1, vk], b[vg, vk, vj_1], c_tile[vi_1, 0, vj_1])
            for i_1 in unroll(4):
                for j_1 in vector(24):
                    with block("c_write", "SSSS", g_j_0, i_0, i_1, j_1) as (vg, vi_0, vi_1, vj_1):
                        c[vi_0 * 4 + vi_1, vg, vj_1] = c_tile[vi_1, 0, vj_1]
        for i_t in range(select(n < 4, select(n % 4 == 3, 1, 0), select(n % 4 == 3, 1, select(n % 4 == 2, 2, select(n % 4 == 1, 1, 0))))):
            c_tile = alloc((3, 1, 24), f32, scope="register")
            for i_r in unroll(3):
                for j_1 in vector(24):
                    with block("c_tail3_init", "SSSS", g_j_0, i_t, i_r, j_1) as (vg, vi_t, vi_r, vj_1):
                        c_tile[vi_r, 0, vj_1] = 0.0
            for k in range(7):
                for i_r in unroll(3):
                    for j_1 in vector(24):
                        with block("c_tail3", "SSRSS", g_j_0, i_t, k, i_r, j_1) as (vg, vi_t, vk, vi_r, vj_1):
                            c_tile[vi_r, 0, vj_1] = fma(a[vg, n - select(n < 4, 3, select(n % 4 == 2, 6, select(n % 4 == 1, 5, 3))) + vi_t * 3 + vi_r, vk], b[vg, vk, vj_1], c_tile[vi_r, 0, vj_1])
            for i_r in unroll(3):
                for j_1 in vector(24):
                    with block("c_tail3_write", "SSSS", g_j_0, i_t, i_r, j_1) as (vg, vi_t, vi_r, vj_1):
                        c[n - select(n < 4, 3, select(n % 4 == 2, 6, select(n % 4 == 1, 5, 3))) + vi_t * 3 + vi_r, vg, vj_1] = c_tile[vi_r, 0, vj_1]
        for i_t in range(select(n < 4, select(n % 4 == 2, 1, 0), select(n % 4 == 1, 1, 0))):
            c_tile = alloc((2, 1, 24), f32, scope="register")
            for i_r in unroll(2):
                for j_1 in vector(24):
                    with block("c_tail2_init", "SSSS", g_j_0, i_t, i_r, j_1) as (vg, vi_t, vi_r, vj_1):
                        c_tile[vi_r, 0, vj_1] = 0.0
            for k in range(7):
                for i_r in unroll(2):
                    for j_1 in vector(24):
                        with block("c_tail2", "SSRSS", g_j_0, i_t, k, i_r, j_1) as (vg, vi_t, vk, vi_r, vj_1):
                            c_tile[vi_r, 0, vj_1] = fma(a[vg, n - 2 + vi_t * 2 + vi_r, vk], b[vg, vk, vj_1], c_tile[vi_r, 0, vj_1])
            for i_r in unroll(2):
                for j_1 in vector(24):
                    with block("c_tail2_write", "SSSS", g_j_0, i_t, i_r, j_1) as (vg, vi_t, vi_r, vj_1):
                        c[n - 2 + vi_t * 2 + vi_r, vg, vj_1] = c_tile[vi_r, 0, vj_1]
        for i_t in range(select(n < 4, select(n % 4 == 1, 1, 0), 0)):
            c_tile = alloc((1, 1, 24), f32, scope="register")
            for j_1 in vector(24):
                with block("c_tail1_init", "SSS", g_j_0, i_t, j_1) as (vg, vi_t, vj_1):
                    c_tile[0, 0, vj_1] = 0.0
            for k in range(7):
                for i_r in unroll(1):
                    for j_1 in vector(24):
                        with block("c_tail1", "SSRS", g_j_0, i_t, k, j_1) as (vg, vi_t, vk, vj_1):
                            c_tile[0, 0, vj_1] = fma(a[vg, n - 1 + vi_t, vk], b[vg, vk, vj_1], c_tile[0, 0, vj_1])
            for i_r in unroll(1):
                for j_1 in vector(24):
                    with block("c_tail1_write", "SSS", g_j_0, i_t, j_1) as (vg, vi_t, vj_1):
                        c[n - 1 + vi_t, vg, vj_1] = c_tile[0, 0, vj_1]
