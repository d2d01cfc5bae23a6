"""A compiled program as a Python callable.

    f = Executable(package)
    y = f(x); y = f(x=x); f(x, out=y)          # one output -> array, several -> tuple; torch in -> torch out
    f.run({"x": x}, out={"y": y})              # -> {"y": y}
    print(f.contract); f.workspace(n=128)

A call marshals its arguments into a slot (see slot.py), lets `prepare` check them and size everything, makes the outputs, and
lets `run` work without the GIL. Any number of threads may call at once. A consumed argument is updated in place and
returned as the output that aliases it. `constants` are contiguous numpy arrays, as the interface lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

from ..support.errors import Error, InternalError, ShapeError, counted, is_are
from ..support.source import caller_span
from . import interrupt
from .arguments import address_of
from .blob import load
from .contract import Contract, Workspace
from .ctx import Entry, ShortEntry
from .failure import failure
from .interface import Input, Interface, Output, Symbol
from .marshal import NOT_PLAIN, Marshal
from .package import Package
from .slot import Slot
from .threads import current_launcher, resolve_threads

_FREE_SLOTS = 8


class Executable:
    """A compiled program: call it with arrays."""

    def __init__(
        self, package: Package, threads: int | None = None, constants: Sequence[Any] = (), cost: Callable[[], Any] | None = None
    ) -> None:
        self.package = package
        self.interface = interface = package.interface
        self._threads = None if threads is None else resolve_threads(threads)[0]
        self._loaded = load(package.blob)
        # The two that end at once keep the GIL: it is cheaper, and nobody changes an array meanwhile.
        prepare = self._loaded.address("prepare")
        self._prepare = ShortEntry(prepare)
        self._size = ShortEntry(self._loaded.address("size"))
        self._entry = Entry(self._loaded.address("run"))
        self._make_cost = cost
        self._free: list[Slot] = []
        self._names = [i.name for i in interface.inputs]
        self._held = constants  # alive as long as their addresses are used
        self._marshal = Marshal(interface, prepare, _addresses(interface, constants))
        self._layout = self._marshal.layout
        self._counted = any(c is not None for o in interface.outputs for c in o.counted_by)
        self.contract = Contract(self)
        self.workspace = Workspace(self)

    @cached_property
    def cost(self) -> Any:
        """What a call costs, as formulas of the dims: print it, or call it with values: `f.cost(n=128)`."""
        if self._make_cost is None:
            raise Error(f"the cost of `{self.interface.name}` is not known here", help="compile the program instead of loading its code")
        return self._make_cost()

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
        """The dims that may vary, with the values they may have."""
        return self.interface.symbols

    def __call__(self, *args: Any, out: Any = None, **named: Any) -> Any:
        """Run the program; `out` gives the memory of the results (one array, or a tuple of them)."""
        if named or len(args) != len(self._names):
            args = self._bind(args, named)
        results = self._call(args, None if out is None else self._out_list(out))
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, feeds: Mapping[str, Any], out: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run the program on arguments by name; `out` may give the memory of some results by name."""
        if not isinstance(feeds, Mapping):
            names = ", ".join(f'"{name}": {name}' for name in self._names)
            raise self._wrong_call(f"`run` takes arguments by name, not an object of type `{type(feeds).__name__}`", f"pass {{{names}}}")
        args = self._bind((), feeds)
        results = self._call(args, None if out is None else self._out_list(out))
        return {o.name: value for o, value in zip(self.outputs, results, strict=True)}

    def symbols_of(self, shapes: Mapping[str, Any]) -> dict[str, int]:
        """The values of the dims for these shapes (and scalars), as `prepare` finds them."""
        if not isinstance(shapes, Mapping):
            raise self._wrong_call(f"shapes are given by name, not as an object of type `{type(shapes).__name__}`")
        unknown = [n for n in shapes if n not in self._names]
        missing = [plan.input.name for plan in self._marshal.plans if plan.input.name not in shapes]
        if unknown or missing:
            self._wrong_name((unknown or missing)[0], known=not unknown)
        sizes = []
        for plan in self._marshal.plans:
            sizes.append(plan.shape(shapes[plan.input.name]))
        slot = self._marshal.new_slot()
        self._marshal.write_shapes(slot, sizes, [shapes.get(self._names[i], 0) for i in self._marshal.scalars])
        code = self._prepare(*slot.addresses)
        if code:
            raise self._failure(code, slot)
        found = slot.dims[self._layout.b : self._layout.c]
        return {symbol.name: value for symbol, value in zip(self.dims, found, strict=True)}

    def workspace_of(self, symbols: Sequence[int]) -> int:
        """Bytes of workspace for these values of the dims, as `size` computes them."""
        slot = self._marshal.new_slot()
        slot.dims[self._layout.b : self._layout.c] = list(symbols)
        code = self._size(*slot.addresses)
        if code:
            raise self._failure(code, slot)
        return slot.dims[self._layout.d]

    def _call(self, args: Sequence[Any], out: Sequence[Any] | None) -> list[Any]:
        try:
            slot = self._free.pop()
        except IndexError:
            slot = self._marshal.new_slot()
        try:
            marshal, torch = self._marshal, False
            code = marshal.enter_plain(slot, args, out)
            if code == NOT_PLAIN:
                taken = marshal.write_any(slot, args, out)
                code = self._prepare(*slot.addresses)
                if not code:
                    out, torch = marshal.place(slot, taken), taken.torch
            if code:
                raise self._failure(code, slot)
            results = self._make_outputs(slot, args, out, torch)
            if self.interface.parallel:
                launcher = current_launcher(self._threads)
                if slot.launcher is not launcher:
                    slot.use(launcher)
            self._run(slot)
            return [self._cut(slot, o, r) for o, r in zip(self.outputs, results, strict=True)] if self._counted else results
        finally:
            slot.dynamic.clear()
            if len(self._free) < _FREE_SLOTS:
                self._free.append(slot)

    def _make_outputs(self, slot: Slot, args: Sequence[Any], given: Sequence[Any] | None, torch: bool) -> list[Any]:
        """The outputs: state and given ones, which are in the slot already, and fresh ones; and room for the workspace."""
        layout, marshal = self._layout, self._marshal
        sizes = layout.read_cd.unpack_from(slot.dims, layout.c * 8)
        if sizes[-1] > slot.room:
            slot.reserve(sizes[-1])
        results: list[Any] = []
        at = 0
        for index, plan in enumerate(marshal.results):
            alias = marshal.aliases[index]
            if alias is not None:
                result = args[marshal.tensors[alias]]
            elif given is None or (result := given[index]) is None:
                result, slot.buffers[layout.inputs + index] = plan.make(sizes[at : at + plan.rank], torch)
            results.append(result)
            at += plan.rank
        return results

    def _run(self, slot: Slot) -> None:
        flag = slot.flag
        flag.value = 0
        try:
            interrupt.enter(flag)
            code = self._entry(*slot.addresses)
        finally:
            interrupt.leave(flag)
        if code:
            interrupt.surface(flag)
            raise self._failure(code, slot)

    def _cut(self, slot: Slot, output: Output, result: Any) -> Any:
        """An output of which only the counted part was written."""
        counts = slot.dims[self._layout.e : self._layout.total]
        if not any(c is not None for c in output.counted_by):
            return result
        return result[tuple(slice(None) if c is None else slice(counts[c]) for c in output.counted_by)]

    def _failure(self, code: int, slot: Slot) -> Error:
        site, values = slot.take_error()
        return failure(self.interface, code, site, values)

    def _bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Arguments in the order of the signature, from places and names."""
        if len(args) > len(self._names):
            taken, given = counted(len(self._names), "argument"), f"{len(args)} {is_are(len(args))} given"
            raise self._wrong_call(f"`{self.interface.name}` takes {taken}, {given}", self._out_help())
        bound = dict(zip(self._names, args, strict=False))
        for name, value in named.items():
            if name not in self._names:
                self._wrong_name(name, known=False)
            if name in bound:
                raise self._wrong_call(f"argument `{name}` is given twice")
            bound[name] = value
        for name in self._names:
            if name not in bound:
                self._wrong_name(name, known=True)
        return tuple(bound[name] for name in self._names)

    def _out_list(self, out: Any) -> Sequence[Any]:
        """Given outputs in order, None where none is given."""
        names = [o.name for o in self.outputs]
        if isinstance(out, Mapping):
            for name in out:
                if name not in names:
                    self._no_such("output", name, names)
            return [out.get(name) for name in names]
        given = list(out) if isinstance(out, tuple | list) else [out]
        if len(given) != len(names):
            raise self._wrong_call(f"`{self.interface.name}` has {counted(len(names), 'output')}, `out` gives {len(given)}")
        return given

    def _wrong_call(self, what: str, help: str = "") -> ShapeError:
        signature = ", ".join(str(i) for i in self.inputs)
        facts = [f"the signature is {self.interface.name}({signature})"]
        return ShapeError(what, where=caller_span(), note="in this call", facts=facts, help=help)

    def _wrong_name(self, name: str, known: bool) -> NoReturn:
        if known:
            raise self._wrong_call(f"argument `{name}` is missing")
        if any(o.name == name for o in self.outputs):
            raise self._wrong_call(f"`{name}` is an output, no argument", self._out_help())
        self._no_such("argument", name, self._names)

    def _out_help(self) -> str:
        """How memory for the outputs is given: `c` is an output: pass out=c."""
        names = [o.name for o in self.outputs if o.alias is None]
        if len(names) != 1 or len(self.outputs) != 1:
            return f"outputs are given as out=({', '.join(o.name for o in self.outputs)})" if names else ""
        return f"`{names[0]}` is an output: pass out={names[0]}"

    def _no_such(self, what: str, name: str, names: list[str]) -> NoReturn:
        from difflib import get_close_matches

        near = get_close_matches(name, names, 1)
        hint = f"did you mean `{near[0]}`?" if near else f"{what}s are: {', '.join(names)}"
        raise self._wrong_call(f"`{self.interface.name}` has no {what} `{name}`", hint)

    def __repr__(self) -> str:
        results = ", ".join(str(o) for o in self.outputs)
        return f"<Executable {self.interface.name}({', '.join(str(i) for i in self.inputs)}) -> {results}>"

    def __reduce__(self) -> NoReturn:
        raise Error(
            f"the executable `{self.interface.name}` cannot be pickled: it is machine code in this process",
            where=caller_span(),
            help="send the program and compile it there (the code cache makes that quick), or save it to a file",
        )


def _addresses(interface: Interface, constants: Sequence[Any]) -> list[int]:
    """Where the constants lie, after a check that they are those the program was compiled for."""
    found = [(c.nbytes, c.flags.c_contiguous) for c in constants]
    if found != [(c.size, True) for c in interface.constants]:
        raise InternalError(f"the constants of `{interface.name}` are not those it was compiled with")
    return [address_of(c) for c in constants]
