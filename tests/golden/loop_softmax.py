from pliant import Out, Tensor, alloc, annotate, block, dim, exp, f32, inf, init, kernel, parallel, reads, where, writes

n = dim("n")
m = dim("m", min=1, max=65536)


@kernel(scheduled=True)
def softmax(x: Tensor[f32, n, m], y: Out[f32, n, m]) -> None:
    for i in parallel(n, grain=4):
        top = alloc((1,), f32, scope="stack")
        total = alloc((1,), f32, scope="stack")
        for j in range(m):
            with block("top", "SR", i, j) as (vi, vj):
                with init():
                    top[0] = -inf
                top[0] = max(top[0], x[vi, vj])
        for j in range(m):
            with block("total", "SR", i, j) as (vi, vj):
                reads(x[vi, vj], top[0])
                writes(total[0])
                annotate(keep="f32")
                with init():
                    total[0] = 0.0
                total[0] += exp(x[vi, vj] - top[0])
        for j in range((m + 3) // 4 * 4):
            with block("y", "SS", i, j) as (vi, vj):
                where(vj < m)
                y[vi, vj] = exp(x[vi, vj] - top[0]) / total[0]
