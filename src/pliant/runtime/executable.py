"""A compiled program as a Python callable.

    f = Executable(package)
    y = f(x); y = f(x=x); f(x, out=y)          # one output -> array, several -> tuple; torch in -> torch out
    f.run({"x": x}, out={"y": y})              # -> {"y": y}
    print(f.contract); f.workspace(n=128)

caller.py makes the calls. A consumed argument is updated in place and returned as the output that aliases it.
`constants` are contiguous numpy arrays, as the interface lists them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..support.errors import Error
from ..support.source import caller_span
from .caller import Caller
from .contract import Contract, Workspace
from .interface import Input, Output, Symbol
from .measures import Cost, Profile, Provenance
from .package import Package
from .pytree import is_plain, tree_call
from .threads import resolve_threads


class Executable:
    """A compiled program: call it with arrays."""

    # Calling an executable calls the function in this slot, which is native code: a method would double the cost of a call.
    __slots__ = ("__call__", "__dict__", "__weakref__")
    __call__: Callable[..., Any]

    def __init__(
        self, package: Package, threads: int | None = None, constants: Sequence[Any] = (), provenance: Provenance | None = None
    ) -> None:
        self.package = package
        self.interface = package.interface
        self._caller = Caller(package, None if threads is None else resolve_threads(threads)[0], constants)
        self.__call__ = self._flat = self._caller.open()  # the second one takes and returns tensors always
        self.calling: Mapping[str, Any] | None = None  # the trees of its arguments and results, if they are no plain tensors
        self._provenance: Any = provenance  # from provenance.py; the runtime alone does not know what a program was compiled from
        self.threads = self._caller.threads  # the number of threads of its calls; None: chosen for each call
        self.contract = Contract(self)
        self.workspace = Workspace(self)

    def call_with_trees(self, description: Mapping[str, Any] | None) -> None:
        """Make calls take and return trees of tensors, as `runtime/pytree.py` describes them; None changes nothing."""
        self.calling = description
        if description is not None and not is_plain(description):
            self.__call__ = tree_call(self._flat, description, [i.name for i in self.inputs])

    @property
    def cost(self) -> Cost:
        """The cost of a call as formulas of the dims: print it, or evaluate it: `f.cost(n=128)`.

        Raises if the executable was not made from a program.
        """
        return self._known("the cost").cost

    def save(self, path: str | os.PathLike[str], targets: Sequence[str] = ()) -> None:
        """Write a `.pliant` file to `path`, which `pliant.load` reads; `targets` adds code for further targets."""
        self._known("the program").save(self, path, targets)

    def profile(self, *args: Any, runs: int | None = None, **named: Any) -> Profile:
        """Run the program on `args` and `named`, as in a call, and return the times of its kernels: print it, or save a trace for Perfetto.

        It is the fastest of `runs` runs, after one that does not count; by default, several. A last run on several threads tells what each
        of them did. A program that updates state runs once, or exactly `runs` times.
        """
        return self._known("the program").profile(self, args, named, runs)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a page of HTML to `path`: the graph by layers, kernels with their code, memory over time, times if there is a profile."""
        self._known("the program").report(self, path)

    def _known(self, what: str) -> Provenance:
        if self._provenance is None:
            help = "make it with pliant.compile or pliant.load"
            raise Error(f"{what} of `{self.interface.name}` is not known here", where=caller_span(), help=help)
        known: Provenance = self._provenance
        return known

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The arguments, in the order of the signature."""
        return self.interface.inputs

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The results, in order."""
        return self.interface.outputs

    @property
    def dims(self) -> tuple[Symbol, ...]:
        """The symbolic dims, with the range of their values."""
        return self.interface.symbols

    def run(self, feeds: Mapping[str, Any], out: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run the program on `feeds`, arguments by name; returns the results by name. `out` may give the memory of some results by name.

        Raises a ShapeError for missing and unknown names.
        """
        caller = self._caller
        if not isinstance(feeds, Mapping):
            names = ", ".join(f'"{name}": {name}' for name in caller.names)
            raise caller.wrong_call(f"`run` takes arguments by name, not an object of type `{type(feeds).__name__}`", f"pass {{{names}}}")
        args = caller.bind((), feeds)
        results = self._flat(*args, out=None if out is None else tuple(caller.out_list(out)))
        return {o.name: value for o, value in zip(self.outputs, (results,) if len(self.outputs) == 1 else results, strict=True)}

    def cancel(self) -> int:
        """Stop the calls that are running in other threads: they raise CancelledError. Returns their number."""
        return self._caller.cancel()

    def symbols_of(self, shapes: Mapping[str, Any]) -> dict[str, int]:
        """Return the values of the dims for these shapes (or arrays) and scalars, as `prepare` computes them.

        Raises the error that a call with them would raise. Scalars that are not given count as 0.
        """
        caller, marshal = self._caller, self._caller.marshal
        if not isinstance(shapes, Mapping):
            raise caller.wrong_call(f"shapes are given by name, not as an object of type `{type(shapes).__name__}`")
        unknown = [n for n in shapes if n not in caller.names]
        missing = [plan.input.name for plan in marshal.plans if plan.input.name not in shapes]
        if unknown or missing:
            caller.wrong_name((unknown or missing)[0], known=not unknown)
        regions = [plan.region(shapes[plan.input.name]) for plan in marshal.plans]
        slot = caller.new_slot()
        marshal.write_regions(slot, regions, [shapes.get(caller.names[i], 0) for i in marshal.scalars])
        if caller.prepare(*slot.addresses):
            raise caller.failure(slot.take_error())
        values = slot.dims[caller.layout.b : caller.layout.c]
        return {symbol.name: value for symbol, value in zip(self.dims, values, strict=True)}

    def workspace_of(self, symbols: Sequence[int]) -> int:
        """Return the bytes of workspace for these values of the dims, as `size` computes them; raises if the program refuses them."""
        caller = self._caller
        slot = caller.new_slot()
        slot.dims[caller.layout.b : caller.layout.c] = list(symbols)
        if caller.size(*slot.addresses):
            raise caller.failure(slot.take_error())
        return slot.dims[caller.layout.d]

    def __repr__(self) -> str:
        results = ", ".join(str(o) for o in self.outputs)
        return f"<Executable {self.interface.name}({', '.join(str(i) for i in self.inputs)}) -> {results}>"

    def _repr_html_(self) -> str:
        """Return the contract as a table, which notebooks show."""
        return self.contract._repr_html_()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the bytes of the `.pliant` file; the process that loads them compiles again if its CPU cannot run the code.

        Raises an Error if the program is not known, UnsupportedError if it calls a Python function.
        """
        return self._known("the program").reduce(self)
