"""Slow path of argument passing: checks the arguments of one call and writes them into its call frame.

Contiguous numpy arrays of exactly the expected dtypes do not come here: native code reads them (runtime/native/read_args.ll) by the plans
of `native_plans`. This module serves every other argument, and raises the errors. Both paths check what compiled programs cannot
see: that memory to be written is writable, and that it does not overlap other arguments.

    taken = marshal.write(slot, args, out)          # then prepare, then marshal.place(slot, taken)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..dtype import ALL, DType
from .arguments import Taken, TensorPlan, contiguous_strides, is_torch, scalar_slot
from .call_frame import CallFrame, Layout
from .interface import Input, Interface
from .records import ArrayFlag, Kind, Plan


class AnyTaken(NamedTuple):
    """A record of the outputs that a caller passed (None for those not passed), and whether new ones are to be torch tensors."""

    outputs: Sequence[Taken | None]
    torch: bool


class Marshal:
    """Writes the arguments of one program's calls into call frames."""

    def __init__(self, interface: Interface) -> None:
        self.layout = Layout(interface)
        self.inputs = interface.inputs
        self.tensors = [i for i, x in enumerate(interface.inputs) if x.kind == "tensor"]
        self.scalars = [i for i, x in enumerate(interface.inputs) if x.kind == "scalar"]
        self.plans = [TensorPlan(interface.inputs[i]) for i in self.tensors]
        self.results = [TensorPlan(Input(o.name, "tensor", o.dtype, o.shape), "output") for o in interface.outputs]
        # For each output the index in `tensors` of the state that it updates, or None.
        self.aliases = [None if o.alias is None else self.tensors.index(o.alias) for o in interface.outputs]
        self.state = [i for i, plan in enumerate(self.plans) if plan.input.consumed]

    def native_plans(self) -> list[Plan]:
        """Return the plans by which native code reads the arguments and allocates the outputs."""
        plans = {i: Plan() for i in range(len(self.inputs))}
        at = 0
        for buffer, (i, plan) in enumerate(zip(self.tensors, self.plans, strict=True)):
            plans[i] = _array_plan(plan, buffer, at, -1, plan.input.consumed)
            at += 2 * plan.rank
        for at, i in enumerate(self.scalars, self.layout.scalars):
            plans[i] = _number_plan(ALL[self.inputs[i].dtype], at)
        at = self.layout.c
        for o, (plan, alias) in enumerate(zip(self.results, self.aliases, strict=True)):
            number = len(self.inputs) + o
            plans[number] = _array_plan(plan, self.layout.inputs + o, at, -1 if alias is None else self.tensors[alias], alias is None)
            at += plan.rank
        return list(plans.values())

    def write(self, slot: CallFrame, args: Sequence[Any], out: Sequence[Any] | None) -> AnyTaken:
        """Write arguments of all supported kinds into a call frame; raises the error for an argument that is wrong."""
        taken = [plan.take(args[i]) for plan, i in zip(self.plans, self.tensors, strict=True)]
        self._check_state(taken)
        outputs = self._take_outputs(out, taken) if out is not None else [None] * len(self.results)
        slot.buffers[: self.layout.inputs] = [t.address for t in taken]
        slot.dims[: self.layout.scalars] = [n for t in taken for n in t.region]
        self._write_scalars(slot, [args[i] for i in self.scalars])
        return AnyTaken(outputs, torch=any(is_torch(t.owner) for t in taken))

    def write_regions(self, slot: CallFrame, regions: Sequence[tuple[int, ...]], scalars: Sequence[Any]) -> None:
        """Write shapes, strides and scalars into a call frame without memory, so that `prepare` can check them."""
        slot.dims[: self.layout.scalars] = [n for region in regions for n in region]
        self._write_scalars(slot, scalars)

    def place(self, slot: CallFrame, taken: AnyTaken) -> list[Any]:
        """Write the addresses of given outputs and of state, after `prepare` computed the shapes.

        Returns the given objects, None for outputs that were not given. Raises if a given output does not have its shape.
        """
        placed: list[Any] = []
        at = self.layout.c
        for index, (plan, alias, output) in enumerate(zip(self.results, self.aliases, taken.outputs, strict=True)):
            shape = tuple(slot.dims[at : at + plan.rank])
            at += plan.rank
            if alias is not None:
                slot.buffers[self.layout.inputs + index] = slot.buffers[alias]
            elif output is not None:
                _check_fits(plan, output, shape)
                slot.buffers[self.layout.inputs + index] = output.address
            placed.append(None if output is None else output.owner)
        return placed

    def _write_scalars(self, slot: CallFrame, values: Sequence[Any]) -> None:
        for at, (i, value) in enumerate(zip(self.scalars, values, strict=True), self.layout.scalars):
            slot.dims[at] = scalar_slot(self.inputs[i], value)

    def _check_state(self, taken: list[Taken]) -> None:
        """Raise an error unless all state is writable and overlaps no other argument and not itself."""
        for i in self.state:
            plan, mine = self.plans[i], taken[i]
            plan.check_writable(mine, "it is updated in place")
            if mine.overlaps_itself():
                raise plan.refuse("it is updated in place, and several of its elements are one", help=plan.way())
            for k, (other_plan, other) in enumerate(zip(self.plans, taken, strict=True)):
                if k != i and mine.overlaps(other):
                    name = other_plan.input.name
                    what = f"it is updated in place, and shares memory with argument `{name}`"
                    raise plan.refuse(what, help=other_plan.way(f"pass a copy: {name}.copy()"))

    def _take_outputs(self, out: Sequence[Any], taken: list[Taken]) -> list[Taken | None]:
        """Return the given outputs, checked for all but their shape, which `prepare` computes later.

        None for those not given and for state. Raises a ShapeError for one that is read-only, or shares memory with an argument or another
        output.
        """
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


def _array_plan(plan: TensorPlan, buffer: int, dims: int, alias: int, written: bool) -> Plan:
    flags = ArrayFlag.PLAIN if written else ArrayFlag.CONTIGUOUS | ArrayFlag.ALIGNED
    return Plan(Kind.TENSOR, id(plan.numpy), plan.rank, flags, plan.dtype.itemsize, buffer=buffer, dims=dims, alias=alias)


def _number_plan(dtype: DType, dims: int) -> Plan:
    if dtype.is_float:
        return Plan(Kind.FLOAT, dims=dims)
    low, high = (0, 1) if dtype.kind == "b" else (dtype.min, dtype.max)
    return Plan(Kind.INTEGER, low=low, high=min(high, 2**63 - 1), dims=dims)


def _check_fits(plan: TensorPlan, given: Taken, shape: tuple[int, ...]) -> None:
    if given.region[: plan.rank] != shape:
        raise plan.refuse(f"its shape is {given.region[: plan.rank]}, expected {shape}")
    if given.region[plan.rank :] != contiguous_strides(shape):
        raise plan.refuse("it is not contiguous", help=f"np.empty({plan.dtype.array_shape(shape)}, np.{plan.numpy.name})")
