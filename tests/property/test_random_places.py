"""Random chains of products, slices, concats and reshapes: values in the memory of others are what numpy says, with poisoned memory too."""

from __future__ import annotations

import numpy as np
import pytest

from compiled_graphs import compiled, host_of, interpret_host, without
from counts import seeds
from random_places import SIZES, Chain


@pytest.mark.parametrize("seed", seeds(24, 2000))
def test_values_in_the_memory_of_others_are_what_numpy_says(seed: int) -> None:
    chain = Chain(seed)
    function = chain.function()
    host = host_of(function, poison=True)
    for sizes in SIZES:
        arguments = chain.arguments(*sizes)
        for found, expected in zip(interpret_host(host, arguments), chain.expected(arguments), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("seed", seeds(4, 200))
def test_native_code_gives_the_same_bits_with_copies(seed: int) -> None:
    chain = Chain(1000 + seed)
    function = chain.function()
    place, copy = compiled(function, poison=True), compiled(function, without("copy_elision"))
    for sizes in SIZES:
        arguments = chain.arguments(*sizes)
        for f in (place, copy):
            found = f(*arguments)
            for x, y in zip(found if isinstance(found, tuple) else (found,), chain.expected(arguments), strict=True):
                np.testing.assert_array_equal(x, y)
