from pliant import Out, Tensor, block, combine, dim, f32, grid, i64, inf, init, kernel, select

n = dim("n")
m = dim("m")


@kernel
def argmax(x: Tensor[f32, n, m], best: Out[f32, n], place: Out[i64, n]) -> None:
    for i, k in grid(n, m):
        with block("best", "SR", i, k) as (vi, vk):
            with init():
                best[vi] = -inf
                place[vi] = 0
            best[vi], place[vi] = combine(
                lambda a, i, b, k: (select(a < b, b, a), select(a < b, k, i)),
                (best[vi], place[vi]),
                (x[vi, vk], vk),
            )
