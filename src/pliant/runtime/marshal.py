"""The arguments of one call, checked and written into its slot.

There are two ways. `enter_plain` serves contiguous numpy arrays of the very dtypes in well under a microsecond (native code, see
codegen/enter.py), and gives up on anything else. `write_any` serves everything that can be served, and raises the error for the
rest. Both check what compiled programs cannot see: that memory which will be written may be written, and is nobody else's during the call.

    code = marshal.enter_plain(slot, args, out)
    if code == NOT_PLAIN:
        taken = marshal.write_any(slot, args, out)          # then prepare, then marshal.place(slot, taken)
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .arguments import Taken, TensorPlan, array_head, contiguous_strides, is_torch, scalar_slot
from .interface import Input, Interface
from .native import native
from .slot import Layout, Slot

NOT_PLAIN = -1
_CONTIGUOUS, _ALIGNED, _WRITABLE = 0x001, 0x100, 0x400  # numpy's flags


class Plan(ctypes.Structure):
    """What `enter` wants of an array; `alias` is the input whose memory an output is, or -1."""

    _fields_ = [(name, ctypes.c_int64) for name in ("dtype", "rank", "flags", "itemsize", "alias")]


class Call(ctypes.Structure):
    """What `enter` needs for one slot; all are numbers or addresses."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            *("head", "array_type", "inputs", "outputs", "plans", "objects", "ranges"),
            *("ctx", "buffers", "dims", "region_c", "prepare"),
        )
    ]


class AnyTaken(NamedTuple):
    """Given outputs (None where none is given), and whether fresh ones are torch tensors."""

    outputs: Sequence[Taken | None]
    torch: bool


class Marshal:
    """How the arguments of one program are written into slots."""

    def __init__(self, interface: Interface, prepare: int, constants: Sequence[int]) -> None:
        self.layout = Layout(interface)
        self.inputs = interface.inputs
        self.tensors = [i for i, given in enumerate(interface.inputs) if given.kind == "tensor"]
        self.scalars = [i for i, given in enumerate(interface.inputs) if given.kind == "scalar"]
        self.plans = [TensorPlan(interface.inputs[i]) for i in self.tensors]
        self.results = [TensorPlan(Input(o.name, "tensor", o.dtype, o.shape), "output") for o in interface.outputs]
        # For each output the place among the tensors of the state that it is, or None.
        self.aliases = [None if o.alias is None else self.tensors.index(o.alias) for o in interface.outputs]
        self.state = [i for i, plan in enumerate(self.plans) if plan.input.consumed]
        self._prepare = prepare
        self._constants = constants
        self._head = array_head()
        self._enter = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(native().address("enter"))
        self._no_outputs = [0] * len(self.results)
        self._pack_objects = struct.Struct(f"={len(self.plans) + len(self.results)}Q").pack_into
        self._native_plans = (Plan * (len(self.plans) + len(self.results)))(
            *(self._native_plan(plan, -1, plan.input.consumed) for plan in self.plans),
            *(self._native_plan(p, -1 if a is None else a, a is None) for p, a in zip(self.results, self.aliases, strict=True)),
        )

    def new_slot(self) -> Slot:
        """Memory for one call."""
        slot = Slot(self.layout, self._constants)
        count = len(self._native_plans)
        slot.objects = (ctypes.c_uint64 * max(count, 1))()
        ranges = (ctypes.c_int64 * max(2 * count, 1))()
        own = (ctypes.addressof(self._native_plans), ctypes.addressof(slot.objects), ctypes.addressof(ranges))
        counts = (len(self.plans), len(self.results))
        call = Call(self._head or 0, id(np.ndarray), *counts, *own, *slot.addresses, self.layout.c, self._prepare)
        slot.call = (call, ranges)
        slot.call_address = ctypes.addressof(call)
        return slot

    def enter_plain(self, slot: Slot, args: Sequence[Any], out: Sequence[Any] | None) -> int:
        """Write arguments and given outputs, and prepare; answers what `prepare` did, or NOT_PLAIN."""
        if self._head is None:
            return NOT_PLAIN
        tensors = args
        if self.scalars:
            tensors = [args[i] for i in self.tensors]
            self._write_scalars(slot, [args[i] for i in self.scalars])
        given = self._no_outputs if out is None else [0 if x is None else id(x) for x in out]
        self._pack_objects(slot.objects, 0, *map(id, tensors), *given)
        code: int = self._enter(slot.call_address)
        return code

    def write_any(self, slot: Slot, args: Sequence[Any], out: Sequence[Any] | None) -> AnyTaken:
        """Write arguments of any kind that can be served; raises the error that says what is wrong with one."""
        taken = [plan.take(args[i]) for plan, i in zip(self.plans, self.tensors, strict=True)]
        self._check_state(taken)
        outputs = self._take_outputs(out, taken) if out is not None else [None] * len(self.results)
        slot.buffers[: self.layout.inputs] = [t.address for t in taken]
        slot.dims[: self.layout.scalars] = [n for t in taken for n in t.region]
        self._write_scalars(slot, [args[i] for i in self.scalars])
        return AnyTaken(outputs, torch=any(is_torch(t.owner) for t in taken))

    def write_shapes(self, slot: Slot, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Any]) -> None:
        """Write shapes of contiguous arguments that have no memory, to ask `prepare` about them."""
        slot.dims[: self.layout.scalars] = [n for shape in shapes for n in (*shape, *contiguous_strides(shape))]
        self._write_scalars(slot, scalars)

    def place(self, slot: Slot, taken: AnyTaken) -> list[Any]:
        """Write the addresses of given outputs and of state, now that `prepare` knows the shapes; answers the given objects."""
        placed: list[Any] = []
        at = self.layout.c
        for index, (plan, alias, given) in enumerate(zip(self.results, self.aliases, taken.outputs, strict=True)):
            shape = tuple(slot.dims[at : at + plan.rank])
            at += plan.rank
            if alias is not None:
                slot.buffers[self.layout.inputs + index] = slot.buffers[alias]
            elif given is not None:
                _check_fits(plan, given, shape)
                slot.buffers[self.layout.inputs + index] = given.address
            placed.append(None if given is None else given.owner)
        return placed

    def _native_plan(self, plan: TensorPlan, alias: int, written: bool) -> Plan:
        flags = _CONTIGUOUS | _ALIGNED | (_WRITABLE if written else 0)
        # Packed arrays have another shape than the tensor: they take the long way.
        return Plan(id(plan.numpy) if plan.per_byte == 1 else 0, plan.rank, flags, plan.dtype.itemsize, alias)

    def _write_scalars(self, slot: Slot, values: Sequence[Any]) -> None:
        for at, (i, value) in enumerate(zip(self.scalars, values, strict=True), self.layout.scalars):
            slot.dims[at] = scalar_slot(self.inputs[i], value)

    def _check_state(self, taken: list[Taken]) -> None:
        """State must be writable, and nobody else may look at its memory during the call."""
        for i in self.state:
            plan, mine = self.plans[i], taken[i]
            plan.check_writable(mine, "it is updated in place")
            for k, (other_plan, other) in enumerate(zip(self.plans, taken, strict=True)):
                if k != i and mine.overlaps(other):
                    name = other_plan.input.name
                    what = f"it is updated in place, and shares memory with argument `{name}`"
                    raise plan.refuse(what, help=other_plan.way(f"pass a copy: {name}.copy()"))

    def _take_outputs(self, out: Sequence[Any], taken: list[Taken]) -> list[Taken | None]:
        """The given outputs, checked against everything but their shape, which is not known yet."""
        outputs: list[Taken | None] = []
        for plan, alias, value in zip(self.results, self.aliases, out, strict=True):
            if value is None:
                outputs.append(None)
                continue
            mine = plan.take(value)
            plan.check_writable(mine, "it is written")
            if alias is not None:
                if mine.address != taken[alias].address:
                    name = self.plans[alias].input.name
                    raise plan.refuse(f"its memory must be that of argument `{name}`", help=f"pass `{name}`, or nothing")
                outputs.append(None)
                continue
            others = [*zip(self.plans, taken, strict=True), *zip(self.results, outputs, strict=False)]
            for other_plan, other in others:
                if other is not None and mine.overlaps(other):
                    raise plan.refuse(f"it shares memory with {other_plan.what}", help="pass memory of its own, or no `out`")
            outputs.append(mine)
        return outputs


def _check_fits(plan: TensorPlan, given: Taken, shape: tuple[int, ...]) -> None:
    if given.region[: plan.rank] != shape:
        raise plan.refuse(f"its shape is {given.region[: plan.rank]}, expected {shape}")
    if given.region[plan.rank :] != contiguous_strides(shape):
        raise plan.refuse("it is not contiguous", help=f"np.empty({plan.dtype.array_shape(shape)}, np.{plan.numpy.name})")
