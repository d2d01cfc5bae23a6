"""`pliant.template`: Python functions that return a kernel for given parameters, for kernels that no sequence of primitives derives.

@template(lanes=(8, 16, 32))
def row_sum(lanes: int) -> Kernel:
    @kernel(scheduled=True)
    def row_sum(x: Tensor[f32, n, m], y: Out[f32, n]) -> None:
        ...                                   # uses `lanes` as a number
    return row_sum

row_sum(lanes=16)                             # a kernel; the same object each time
for kernel in row_sum.variants(): ...         # one for each choice, for example for a search
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from .support.errors import Error
from .support.source import caller_span

if TYPE_CHECKING:
    from .api import Kernel


class Template:
    """A family of kernels: a function from parameters to a kernel, and the allowed values of each parameter."""

    def __init__(self, make: Callable[..., Kernel], choices: Mapping[str, Sequence[Any]]) -> None:
        self.__name__ = make.__name__
        self.__doc__ = make.__doc__
        self.choices = {name: tuple(values) for name, values in choices.items()}
        self._make = make
        self._signature = inspect.signature(make)
        self._made: dict[tuple[Any, ...], Kernel] = {}
        unknown = [name for name in choices if name not in self._signature.parameters]
        if unknown:
            raise Error(f"template `{self.__name__}` has no parameter `{unknown[0]}`", where=caller_span())

    def __call__(self, *args: Any, **parameters: Any) -> Kernel:
        """Returns the kernel for these parameters (cached); raises Error if a value is not an allowed choice."""
        try:
            bound = self._signature.bind(*args, **parameters)
        except TypeError as problem:
            raise Error(f"template `{self.__name__}`: {problem}", where=caller_span()) from None
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if name in self.choices and value not in self.choices[name]:
                raise Error(
                    f"template `{self.__name__}`: {name} = {value!r} is not a choice",
                    where=caller_span(),
                    facts=[f"{name} is one of {', '.join(map(repr, self.choices[name]))}"],
                )
        key = tuple(bound.arguments.values())
        if key not in self._made:
            self._made[key] = self._make(*bound.args, **bound.kwargs)
        return self._made[key]

    def variants(self, **fixed: Any) -> Iterator[Kernel]:
        """Yields a kernel for each combination of the choices of the parameters that are not in `fixed`."""
        free = {name: values for name, values in self.choices.items() if name not in fixed}
        for values in product(*free.values()):
            yield self(**fixed, **dict(zip(free, values, strict=True)))

    def __repr__(self) -> str:
        return f"<template {self.__name__}{self._signature}>"


def template(make: Callable[..., Kernel] | None = None, /, **choices: Sequence[Any]) -> Any:
    """Decorator: makes a template from a function that returns a kernel; keywords give the allowed values of its parameters."""
    if make is None:
        return lambda f: Template(f, choices)
    return Template(make, choices)
