"""Cases of reductions beyond sums: products, truth, norms, logarithms of sums, moments, places of extrema."""

from __future__ import annotations

import numpy as np

from pliant import ops
from pliant.dtype import bf16, bool_, f16, f64, i32, u8

from .case import Case

MATRIX = ("n", "m")
CUBE = ("n", "m", "k")
WILD = np.array([0.5, -np.inf, np.nan, np.inf, 3.0, np.nan, -9.0])

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
    "var": Case(lambda x: ops.var(x, axis=-1), (MATRIX,)),
    "var_all": Case(lambda x: ops.var(x, correction=0, keepdims=True), (CUBE,), (f64,)),
    "var_f16": Case(lambda x: ops.var(x, axis=0), (MATRIX,), (f16,)),
    "var_of_one": Case(lambda x: ops.var(x, axis=0), (("one", "m"),)),
    "std": Case(lambda x: ops.std(x, axis=(0, 2)), (CUBE,)),
    "argmax": Case(lambda x: ops.argmax(x, axis=1), (CUBE,)),
    "argmax_all": Case(ops.argmax, (MATRIX,), (f16,)),
    "argmax_ties": Case(lambda x: ops.argmax(x, axis=0, keepdims=True), (CUBE,), (i32,), 0, 2),
    "argmax_last": Case(lambda x: ops.argmax(x, axis=-1, select_last_index=True), (CUBE,), (i32,), 0, 2),
    "argmax_wild": Case(lambda x: ops.argmax(ops.add(x, WILD.astype(np.float32)), axis=1), (("n", 7),)),
    "argmax_infinite": Case(lambda x: ops.argmax(ops.sub(x, np.float32(np.inf)), axis=1), (MATRIX,)),
    "argmin": Case(lambda x: ops.argmin(x, axis=0), (MATRIX,)),
    "argmin_ties": Case(lambda x: ops.argmin(x, axis=1, keepdims=True), (CUBE,), (u8,), 0, 2),
    "argmin_last": Case(lambda x: ops.argmin(x, axis=1, select_last_index=True), (CUBE,), (i32,), 0, 2),
    "argmin_wild": Case(lambda x: ops.argmin(ops.add(x, WILD), axis=1), (("n", 7),), (f64,)),
    "argmax_no_rows": Case(lambda x: ops.argmax(x, axis=1), (("zero", "m"),)),
    "max_with_index": Case(lambda x: ops.max_with_index(x, axis=1), (CUBE,)),
    "min_with_index": Case(lambda x: ops.min_with_index(x, axis=0, keepdims=True), (MATRIX,), (i32,), -9, 9),
    "hardmax": Case(ops.hardmax, (MATRIX,)),
    "hardmax_middle": Case(lambda x: ops.hardmax(x, axis=1), (CUBE,), (f16,), -1, 1),
}
