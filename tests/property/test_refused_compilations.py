"""What cannot be compiled is refused in words before there is code, whatever stands around it; without that one thing it is compiled."""

from __future__ import annotations

import random

import ml_dtypes
import numpy as np
import pytest

from compiled_graphs import host_of
from counts import seeds
from pliant import f32, i64, ops
from pliant.graph.builder import Builder
from pliant.graph.node import Function, Tensor
from pliant.graph.verify import verify
from pliant.support.errors import UnsupportedError
from pliant.sym.expr import Dim


def rows_of_a_literal(dice: random.Random, broken: bool) -> Function:
    """Literal tensors have whole bytes; those of fewer bits are parameters, which take packed bytes."""
    n, builder = Dim("n", 0, 64), Builder("literals")
    columns = dice.choice([2, 4])
    codes = np.array([[dice.randrange(8) for _ in range(columns)] for _ in range(3)], np.int8)
    if broken:
        codes = codes.astype(dice.choice([ml_dtypes.uint4, ml_dtypes.int4]))
    which = builder.param("which", Tensor(i64, (n,)))
    x = builder.param("x", Tensor(f32, (n,)))
    with builder:
        rows = ops.cast(ops.take(builder.literal(codes), which, 0), "f32")
        return builder.finish([ops.neg(rows) if dice.random() < 0.5 else rows, ops.add(x, 1.0)])


def test_literals_of_parts_of_bytes() -> None:
    for seed in seeds(5, 500):
        for broken in (False, True):
            function = rows_of_a_literal(random.Random(seed), broken)
            verify(function)
            if not broken:
                host_of(function)
                continue
            with pytest.raises(UnsupportedError, match="literal tensor"):
                host_of(function)
