from pliant import InOut, Out, cast, check, dim, f32, i32, kernel

n = dim("n", min=1)


@kernel
def newton(x: InOut[f32, n], steps: Out[i32, n], tolerance: f32, limit: i32) -> None:
    check(limit > 0, "limit is {0}", limit, help="give a positive limit")
    for i in range(n):
        steps[i] = 0
        while tolerance < abs(x[i] * x[i] - 2.0) and steps[i] < limit:
            x[i] = (x[i] + 2.0 / x[i]) / 2.0
            steps[i] += 1
        if steps[i] == limit:
            x[i] = 0.0
        elif x[i] < 0.0:
            x[i] = -x[i]
        else:
            half = cast(i32, x[i]) // 2
            steps[i] = steps[i] + half
