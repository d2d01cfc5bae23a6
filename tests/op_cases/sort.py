"""Cases of sorting, selection and search."""

from __future__ import annotations

from pliant import ops
from pliant.dtype import bf16, bool_, f16, f32, f64, i8, i32, i64

from .case import Case


def _searched(order: object, values: object, right: bool = False) -> object:
    return ops.searchsorted(ops.sort(order)[0], values, right)


CASES: dict[str, Case] = {
    "sort": Case(ops.sort, (("n", "h"),)),
    "sort_line": Case(ops.sort, ((23,),), (f64,)),
    "sort_first": Case(lambda x: ops.sort(x, axis=0), (("h", "n"),), (i32,), -9, 9),
    "sort_middle": Case(lambda x: ops.sort(x, axis=1, descending=True), (("n", "h", "k"),), (f16,)),
    "sort_equal": Case(ops.sort, (("n", 17),), (i8,), 0, 3),
    "sort_equal_descending": Case(lambda x: ops.sort(x, descending=True), (("n", 17),), (i64,), 0, 3),
    "sort_bool": Case(ops.sort, (("n", "h"),), (bool_,), 0, 2),
    "sort_bf16": Case(ops.sort, (("n", "h"),), (bf16,)),
    "sort_one": Case(ops.sort, (("n", "one"),)),
    "sort_empty": Case(ops.sort, (("n", "zero"),)),
    "sort_no_rows": Case(ops.sort, (("zero", "n"),)),
    "argsort": Case(lambda x: ops.argsort(x, axis=0), (("h", "n"),)),
    "argsort_descending": Case(lambda x: ops.argsort(x, descending=True), (("n", 9),), (i32,), 0, 4),
    "topk": Case(lambda x: ops.topk(x, 3), (("n", "h"),)),
    "topk_smallest": Case(lambda x: ops.topk(x, 2, axis=0, largest=False), (("h", "n"),), (i32,), 0, 4),
    "topk_all": Case(lambda x: ops.topk(x, x.tensor.shape[1]), (("n", "h"),), (i8,), 0, 4),
    "topk_none": Case(lambda x: ops.topk(x, 0), (("n", "h"),)),
    "topk_many": Case(lambda x: ops.topk(x, 70, axis=0), ((80, 2),)),
    "topk_f16": Case(lambda x: ops.topk(x, 1), (("n", "h"),), (f16,)),
    "searchsorted": Case(_searched, (("h",), ("n", "m")), (f32, f32)),
    "searchsorted_right": Case(lambda a, v: _searched(a, v, True), (("h",), ("m",)), (i32, i32), 0, 5),
    "searchsorted_rows": Case(_searched, (("n", "h"), ("n", "m")), (i64, i64), 0, 5),
    "searchsorted_empty": Case(_searched, (("zero",), ("m",))),
    "bucketize": Case(lambda v, a: ops.bucketize(v, ops.sort(a)[0], right=True), (("n", "m"), ("k",)), (f32, f32)),
}
