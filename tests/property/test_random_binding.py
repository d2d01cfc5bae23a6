"""Random functions whose dims get values or are made one: for arguments of these sizes they mean what they meant; nonsense is refused."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from counts import seeds
from pliant.graph.annotation import defined_vars
from pliant.graph.node import Function, Tensor
from pliant.graph.passes.bind_dims import bind_dims
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph
from pliant.support.errors import Error, InternalError
from pliant.sym.expr import Dim
from random_graphs import make_arguments, make_function

BATCH = 20


def sizes(function: Function, arguments: list[Any]) -> dict[str, int]:
    """The values that dims have in arguments."""
    found: dict[str, int] = {}
    for p, a in zip(function.params, arguments, strict=True):
        if isinstance(p.annotation, Tensor):
            found |= {e.name: n for e, n in zip(p.annotation.shape, a.shape, strict=True) if isinstance(e, Dim)}
    return found


def bits(function: Function, arguments: list[Any]) -> list[bytes]:
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    with np.errstate(all="ignore"):
        return [np.asarray(a).tobytes() for a in (*run_graph(function, copies), *copies)]


@pytest.mark.parametrize("first", seeds(100, 10_000, BATCH))
def test_bound_functions_mean_the_same(first: int) -> None:
    for seed in range(first, first + BATCH):
        function, bounds = make_function(seed)
        arguments = make_arguments(function, bounds, seed)
        if arguments is None:
            continue
        known, dice = sizes(function, arguments), random.Random(seed)
        wanted: dict[str, Any] = {name: size for name, size in known.items() if dice.random() < 0.5}
        equal = [(a, b) for a in known for b in known if a < b and known[a] == known[b]]
        if equal and dice.random() < 0.5:
            a, b = dice.choice(equal)
            wanted = {**wanted, a: b}
        try:
            changed = bind_dims(function, wanted)
        except InternalError:
            raise
        except Error as error:
            pytest.fail(f"seed {seed}, {wanted} of {known}: {error}")
        verify(changed)
        left = {v.name for v in defined_vars(p.annotation for p in changed.params)}
        assert not left & {name for name, value in wanted.items() if isinstance(value, int)}
        assert bits(changed, arguments) == bits(function, arguments), f"seed {seed}, {wanted}:\n{function}\n{changed}"
        for name in known:
            limit = next(v for v in defined_vars(p.annotation for p in function.params) if v.name == name)
            for nonsense in ({"nobody": 3}, {name: "nobody"}, {name: -1}, {name: getattr(limit, "max", 0) + 1}):
                with pytest.raises(Error):
                    bind_dims(function, nonsense)
