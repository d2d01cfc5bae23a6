"""A compiled program as a Python callable.

    f = Executable(package)
    y = f(x); y = f(x=x); f(x, out=y)          # one output -> array, several -> tuple; torch in -> torch out
    f.run({"x": x}, out={"y": y})              # -> {"y": y}
    print(f.contract); f.workspace(n=128)

A call marshals its arguments into a slot (see slot.py), lets `prepare` check them and size everything, makes the outputs, and
lets `run` work without the GIL. Any number of threads may call at once. A consumed argument is updated in place and
returned as the output that aliases it. The usual call (numpy arrays, contiguous) takes a short way of a few microseconds;
`_marshal` is written for its speed, everything rare is in `_marshal_any` and in arguments.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

import numpy as np

from ..support.errors import Error, ShapeError
from ..support.source import caller_span
from . import interrupt
from .arguments import Taken, TensorPlan, address_of, contiguous_strides, is_torch, scalar_slot
from .blob import load
from .contract import Contract, Workspace
from .ctx import Code, Entry, ShortEntry
from .failure import failure
from .interface import Input, Output, Symbol
from .package import Package
from .slot import Layout, Slot
from .threads import launcher_for, resolve_threads

_FREE_SLOTS = 8


class Executable:
    """A compiled program: call it with arrays."""

    def __init__(self, package: Package, threads: int | None = None) -> None:
        self.package = package
        self.interface = interface = package.interface
        self._threads = None if threads is None else resolve_threads(threads)[0]
        self._loaded = load(package.blob)
        # The two that end at once keep the GIL: it is cheaper, and nobody changes an array meanwhile.
        self._prepare = ShortEntry(self._loaded.address("prepare"))
        self._size = ShortEntry(self._loaded.address("size"))
        self._entry = Entry(self._loaded.address("run"))
        self._layout = Layout(interface)
        self._free: list[Slot] = []
        self._names = [i.name for i in interface.inputs]
        self._tensors = [i for i, given in enumerate(interface.inputs) if given.kind == "tensor"]
        self._scalars = [i for i, given in enumerate(interface.inputs) if given.kind == "scalar"]
        self._plans = [TensorPlan(interface.inputs[i]) for i in self._tensors]
        self._results = [TensorPlan(Input(o.name, "tensor", o.dtype, o.shape), "output") for o in interface.outputs]
        self._state = [plan for plan in self._plans if plan.input.consumed]
        self.contract = Contract(self)
        self.workspace = Workspace(self)

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
        args = self._bind((), feeds)
        results = self._call(args, None if out is None else self._out_list(out))
        return {o.name: value for o, value in zip(self.outputs, results, strict=True)}

    def symbols_of(self, shapes: Mapping[str, Any]) -> dict[str, int]:
        """The values of the dims for these shapes (and scalars), as `prepare` finds them."""
        unknown = [n for n in shapes if n not in self._names]
        missing = [plan.input.name for plan in self._plans if plan.input.name not in shapes]
        if unknown or missing:
            self._wrong_name((unknown or missing)[0], known=not unknown)
        values: list[int] = []
        for plan in self._plans:
            shape = tuple(int(size) for size in shapes[plan.input.name])
            if len(shape) != plan.rank:
                raise plan.refuse(f"it has {len(shape)} dims {shape}, expected {plan.rank}")
            values += (*shape, *contiguous_strides(shape))
        values += [scalar_slot(self.inputs[i], shapes.get(self._names[i], 0)) for i in self._scalars]
        slot = Slot(self._layout)
        self._layout.pack_a.pack_into(slot.dims, 0, *values)
        code = self._prepare(*slot.addresses)
        if code:
            raise self._failure(code, slot)
        found = slot.dims[self._layout.b : self._layout.c]
        return {symbol.name: value for symbol, value in zip(self.dims, found, strict=True)}

    def workspace_of(self, symbols: Sequence[int]) -> int:
        """Bytes of workspace for these values of the dims, as `size` computes them."""
        slot = Slot(self._layout)
        slot.dims[self._layout.b : self._layout.c] = list(symbols)
        code = self._size(*slot.addresses)
        if code:
            raise self._failure(code, slot)
        return slot.dims[self._layout.d]

    def _call(self, args: Sequence[Any], out: list[Any] | None) -> list[Any]:
        try:
            slot = self._free.pop()
        except IndexError:
            slot = Slot(self._layout)
        try:
            if out is None and not self._state and self._marshal(slot, args):
                return self._finish(slot, args, None, torch=False)
            return self._marshal_any(slot, args, out)
        finally:
            slot.dynamic.clear()
            if len(self._free) < _FREE_SLOTS:
                self._free.append(slot)

    def _marshal(self, slot: Slot, args: Sequence[Any]) -> bool:
        """Write plain arguments into the slot; False if one is not plain."""
        values: list[int] = []
        pointers: list[int] = []
        tensors = args if not self._scalars else [args[i] for i in self._tensors]
        for plan, x in zip(self._plans, tensors, strict=True):
            if type(x) is not np.ndarray or x.dtype is not plan.numpy or not x.flags.c_contiguous:
                return False
            region = plan.regions.get(x.shape)
            if region is None and (region := plan.region(x.shape)) is None:
                return False
            address = address_of(x)
            if address & plan.mask:
                return False
            values += region
            pointers.append(address)
        if self._scalars:
            values += [scalar_slot(self.inputs[i], args[i]) for i in self._scalars]
        self._layout.pack_a.pack_into(slot.dims, 0, *values)
        self._layout.pack_inputs.pack_into(slot.buffers, 0, *pointers)
        return True

    def _marshal_any(self, slot: Slot, args: Sequence[Any], out: list[Any] | None) -> list[Any]:
        """A call with any arguments that can be served: other libraries, strides, state, given outputs."""
        taken = [plan.take(args[i]) for plan, i in zip(self._plans, self._tensors, strict=True)]
        values = [n for t in taken for n in t.region]
        values += [scalar_slot(self.inputs[i], args[i]) for i in self._scalars]
        self._check_state(taken)
        self._layout.pack_a.pack_into(slot.dims, 0, *values)
        self._layout.pack_inputs.pack_into(slot.buffers, 0, *(t.address for t in taken))
        given = None if out is None else self._take_outputs(out, args, taken)
        return self._finish(slot, args, given, torch=any(is_torch(t.owner) for t in taken))

    def _finish(self, slot: Slot, args: Sequence[Any], given: list[Taken | None] | None, torch: bool) -> list[Any]:
        """Prepare, make the outputs that are not given, run."""
        layout = self._layout
        code = self._prepare(*slot.addresses)
        if code:
            raise self._failure(code, slot)
        *sizes, room = layout.read_cd.unpack_from(slot.dims, layout.c * 8)
        if room > slot.room:
            slot.reserve(room)
        results: list[Any] = []
        at = 0
        for index, plan in enumerate(self._results):
            shape = tuple(sizes[at : at + plan.rank])
            at += plan.rank
            alias = self.outputs[index].alias
            if alias is not None:
                result, address = args[alias], slot.buffers[self._tensors.index(alias)]
            elif given is not None and (mine := given[index]) is not None:
                result, address = self._fit(plan, mine, shape), mine.address
            else:
                result, address = plan.make(shape, torch)
            slot.buffers[layout.inputs + index] = address
            results.append(result)
        if self.interface.parallel:
            launcher = launcher_for(resolve_threads(self._threads)[0])
            if slot.launcher is not launcher:
                slot.use(launcher)
        self._run(slot)
        if self.interface.counts:
            results = [self._cut(slot, o, r) for o, r in zip(self.outputs, results, strict=True)]
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
        if not any(c is not None for c in output.count):
            return result
        return result[tuple(slice(None) if c is None else slice(counts[c]) for c in output.count)]

    def _failure(self, code: int, slot: Slot) -> Error:
        site, values = slot.take_error()
        return failure(self.interface, Code(code) if code in list(Code) else code, site, values)

    def _check_state(self, taken: list[Taken]) -> None:
        """State must be writable, and nobody else may look at its memory during the call."""
        for mine, plan in zip(taken, self._plans, strict=True):
            if not plan.input.consumed:
                continue
            plan.check_writable(mine, "it is updated in place")
            for other, other_plan in zip(taken, self._plans, strict=True):
                if other is not mine and mine.overlaps(other):
                    raise plan.refuse(
                        f"it is updated in place, and shares memory with argument `{other_plan.input.name}`",
                        help=f"pass a copy: {other_plan.input.name}.copy()",
                    )

    def _take_outputs(self, out: list[Any], args: Sequence[Any], taken: list[Taken]) -> list[Taken | None]:
        """The given outputs, checked against everything but their shape."""
        given: list[Taken | None] = []
        for plan, output, value in zip(self._results, self.outputs, out, strict=True):
            if value is None:
                given.append(None)
                continue
            mine = plan.take(value)
            plan.check_writable(mine, "it is written")
            if output.alias is not None:
                if mine.address != taken[self._tensors.index(output.alias)].address:
                    name = self._names[output.alias]
                    raise plan.refuse(f"its memory is that of argument `{name}`", help=f"leave it away, or pass `{name}`")
                given.append(None)
                continue
            others = [*zip(self._plans, taken, strict=True), *zip(self._results, given, strict=False)]
            for other_plan, other in others:
                if other is not None and mine.overlaps(other):
                    raise plan.refuse(f"it shares memory with {other_plan.what}", help="pass memory of its own, or no `out`")
            given.append(mine)
        return given

    def _fit(self, plan: TensorPlan, given: Taken, shape: tuple[int, ...]) -> Any:
        """The array given for an output, if it has the very shape and is contiguous."""
        if given.region[: plan.rank] != shape:
            raise plan.refuse(f"its shape is {given.region[: plan.rank]}, expected {shape}")
        if given.region[plan.rank :] != contiguous_strides(shape):
            raise plan.refuse("it is not contiguous", help=f"np.empty({shape}, np.{plan.dtype.long_name})")
        return given.owner

    def _bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Arguments in the order of the signature, from places and names."""
        if len(args) > len(self._names):
            count = f"{len(self._names)} argument" + ("s" if len(self._names) != 1 else "")
            raise self._wrong_call(f"`{self.interface.name}` takes {count}, {len(args)} are given")
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

    def _out_list(self, out: Any) -> list[Any]:
        """Given outputs in order, None where none is given."""
        names = [o.name for o in self.outputs]
        if isinstance(out, Mapping):
            for name in out:
                if name not in names:
                    self._no_such("output", name, names)
            return [out.get(name) for name in names]
        given = list(out) if isinstance(out, tuple | list) else [out]
        if len(given) != len(names):
            raise self._wrong_call(f"`{self.interface.name}` has {len(names)} outputs, `out` gives {len(given)}")
        return given

    def _wrong_call(self, what: str, help: str = "") -> ShapeError:
        signature = ", ".join(str(i) for i in self.inputs)
        facts = [f"the signature is {self.interface.name}({signature})"]
        return ShapeError(what, where=caller_span(), note="in this call", facts=facts, help=help)

    def _wrong_name(self, name: str, known: bool) -> NoReturn:
        if known:
            raise self._wrong_call(f"argument `{name}` is missing")
        self._no_such("argument", name, self._names)

    def _no_such(self, what: str, name: str, names: list[str]) -> NoReturn:
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
