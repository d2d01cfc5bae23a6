"""Cases of reductions beyond sums: products, truth, norms, logarithms of sums, moments, places of extrema."""

from __future__ import annotations

from pliant.dtype import bf16, bool_, f16, f64, i32
from pliant.graph import ops

from .case import Case

MATRIX = ("n", "m")
CUBE = ("n", "m", "k")

CASES: dict[str, Case] = {
    "prod": Case(lambda x: ops.prod(x, axis=1), (MATRIX,)),
    "prod_int": Case(lambda x: ops.prod(x, axis=(0, 2)), (CUBE,), (i32,), -9, 9),
    "prod_empty": Case(lambda x: ops.prod(x, axis=1), (("n", "zero"),), (f16,)),
    "all": Case(lambda x: ops.all(x, axis=0), (MATRIX,), (bool_,), 0, 2),
    "any": Case(lambda x: ops.any(x, axis=-1, keepdims=True), (MATRIX,), (bool_,), 0, 2),
    "all_everything": Case(ops.all, (CUBE,), (bool_,), 0, 2),
    "any_empty": Case(lambda x: ops.any(x, axis=1), (("n", "zero"),), (bool_,), 0, 2),
    "sum_square": Case(lambda x: ops.sum_square(x, axis=1), (CUBE,)),
    "sum_square_int": Case(ops.sum_square, (MATRIX,), (i32,), -9, 9),
    "sum_square_f16": Case(lambda x: ops.sum_square(x, axis=0), (MATRIX,), (f16,)),
    "norm": Case(lambda x: ops.norm(x, axis=1), (MATRIX,)),
    "norm_one": Case(lambda x: ops.norm(x, axis=(0, 1), keepdims=True, p=1), (CUBE,), (bf16,)),
    "norm_three": Case(lambda x: ops.norm(x, p=3), (MATRIX,), (f64,)),
    "logsumexp": Case(lambda x: ops.logsumexp(x, axis=1), (CUBE,)),
    "logsumexp_all": Case(ops.logsumexp, (MATRIX,), (f16,)),
    "logsumexp_large": Case(lambda x: ops.logsumexp(x, axis=0, keepdims=True), (MATRIX,), (f64,), -900, 900),
    "logsumexp_empty": Case(lambda x: ops.logsumexp(x, axis=1), (("n", "zero"),)),
    "log_softmax": Case(ops.log_softmax, (MATRIX,)),
    "log_softmax_middle": Case(lambda x: ops.log_softmax(x, axis=1), (CUBE,), (f16,)),
    "log_softmax_large": Case(ops.log_softmax, (MATRIX,), (f64,), -900, 900),
}
