"""Compiled programs by their structure alone: what is compiled for one set of weights serves every other one.

    weightless = Weightless(function, literals, machine, options, store)   # the function after the graph passes
    package = weightless.get() or compile(…, computed=weightless.computed)
    weightless.filled(package)                                      # with the values that passes computed from this program's literals

After the graph passes (`GRAPH` in `pipeline.py`) the compiler asks a literal tensor for its dtype and shape, not for its values. Scalars
are the exception: they become part of expressions. So the key covers the function with its literals by position, and the values of
scalars. A literal that a graph pass computed (the factors of a batch norm) is part of a package. In the cached form it has a name instead
(`computed:0`), and `filled` puts the data in its place.

The key also covers names, origins and spans of the nodes, so that a package has the same bytes as if it were compiled from this program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .cache_key import cache_key
from .graph.node import Function, relations, walk_nodes
from .graph.structural import Form, array_form
from .lower.host.package import COMPUTED, inline_constant
from .program import Program
from .runtime.interface import Constant
from .runtime.package import Package
from .support.errors import ModelFileError
from .target import Target
from .tuned_code import CodeStore

Array = np.ndarray[Any, Any]


class Weightless:
    """The place of a program in the code cache, whatever the values of its weights."""

    def __init__(self, function: Function, literals: Sequence[Array], machine: Target, options: str, store: CodeStore) -> None:
        self.store = store
        self.computed: tuple[Array, ...] = ()  # the literals that passes computed, in order of appearance
        number = {id(array): str(i) for i, array in enumerate(literals)}
        names: dict[int, str] = {}

        def form(array: Array) -> Form:
            name = number.get(id(array)) or names.get(id(array))
            if name is None:
                name = names[id(array)] = f"{COMPUTED}{len(self.computed)}"
                self.computed += (array,)
            return (name, str(array.dtype), array.shape, array_form(array) if array.ndim == 0 else "")

        key = cache_key(Program(function), machine, literal=form)
        nodes = [(type(n).__name__, [o.name for o in n.outs], n.origin, n.span) for n in walk_nodes(function.nodes)]
        places = [(r.message, r.help, r.span) for r in relations(function)]
        self.key = b"\n".join([b"any weights", key, repr((len(literals), nodes, places)).encode(), options.encode()])

    def get(self) -> Package | None:
        """Returns the cached package, which names computed literals.

        None if there is none, or its names and sizes do not fit `computed`.
        """
        data = self.store.get(self.key)
        try:
            package = None if data is None else Package.from_bytes(data)
        except ModelFileError:
            return None
        parts = [] if package is None else [package.interface, *([] if package.load is None else [package.load.interface])]
        fits = all(self._fits(c) for part in parts for c in part.constants)
        return package if fits else None

    def put(self, package: Package) -> None:
        """Stores a package that names computed literals in the code cache."""
        self.store.put(self.key, package.to_bytes())

    def filled(self, package: Package) -> Package:
        """Returns the package, and its load part, with the data of computed literals in place of their names."""
        constants = tuple(self._filled(c) for c in package.interface.constants)
        load = None if package.load is None else self.filled(package.load)
        return package._replace(interface=package.interface._replace(constants=constants), load=load)

    def _filled(self, c: Constant) -> Constant:
        return inline_constant(self.computed[int(c.name.removeprefix(COMPUTED)[:9])]) if c.name.startswith(COMPUTED) else c

    def _fits(self, c: Constant) -> bool:
        """Returns True if a constant names no computed literal, or one that there is and has its size."""
        number = c.name.removeprefix(COMPUTED)
        if number == c.name:
            return True
        return (
            number.isascii() and number.isdigit() and int(number[:9]) < len(self.computed) and self.computed[int(number)].nbytes == c.size
        )
