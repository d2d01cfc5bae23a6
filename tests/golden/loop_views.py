from pliant import (
    InOut,
    Out,
    Tensor,
    alloc,
    cast,
    dim,
    f32,
    fma,
    gpu,
    i32,
    kernel,
    serial,
    strides,
    u8,
    unroll,
    vector,
    view,
)

n = dim("n", multiple_of=4)
s = dim("s", min=16)


@kernel
def unpack(
    raw: Tensor[u8, n * 68],
    row: Tensor[i32, n],
    out: Out[f32, n, 16, strides(s, 1)],
    sums: InOut[f32, n],
) -> None:
    for i in gpu("block.x", n):
        codes = view(raw[row[i] * 68], (4, 4), strides=(4, 1), dtype=i32)
        scale = view(raw[row[i] * 68 + 64], (1,), dtype=f32)
        t = alloc((16,), f32, scope="stack")
        for j in unroll(4):
            for k in vector(4):
                t[j * 4 + k] = cast(f32, codes[j, k]) * scale[0]
        for j in serial(1, 16, trips=15):
            out[i, j] = t[j]
            sums[i] = fma(t[j], t[j], sums[i])
        out[i, 0] = t[0]
