"""The arguments of one call, checked and written into its slot.

There are two ways. `write_plain` serves contiguous numpy arrays of the very dtypes and takes about a microsecond; it gives up
on anything else. `write_any` serves everything that can be served, and raises the error for the rest. Both check what compiled code
cannot see: that memory which will be written may be written, and is nobody else's during the call.

    given = marshal.write_plain(slot, args, out) or marshal.write_any(slot, args, out)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .arguments import Taken, TensorPlan, contiguous_strides, is_torch, scalar_slot
from .interface import Input, Interface
from .slot import Layout, Slot


class Given(NamedTuple):
    """What the caller's objects say about the outputs: arrays given for them (none: make all), and the library to make them with."""

    outputs: Sequence[Taken | None]
    torch: bool


_NOTHING_GIVEN = Given((), torch=False)


class Marshal:
    """How the arguments of one program are written into slots."""

    def __init__(self, interface: Interface, layout: Layout) -> None:
        self.layout = layout
        self.inputs = interface.inputs
        self.tensors = [i for i, given in enumerate(interface.inputs) if given.kind == "tensor"]
        self.scalars = [i for i, given in enumerate(interface.inputs) if given.kind == "scalar"]
        self.plans = [TensorPlan(interface.inputs[i]) for i in self.tensors]
        self.results = [TensorPlan(Input(o.name, "tensor", o.dtype, o.shape), "output") for o in interface.outputs]
        # For each output the place among the tensors of the state that it is, or None.
        self.aliases = [None if o.alias is None else self.tensors.index(o.alias) for o in interface.outputs]
        self.state = [i for i, plan in enumerate(self.plans) if plan.input.consumed]

    def write_plain(self, slot: Slot, args: Sequence[Any], out: Sequence[Any] | None) -> Given | None:
        """Write the arguments if all are plain; None, with nothing promised about the slot, if not."""
        values: list[int] = []
        pointers: list[int] = []
        tensors = args if not self.scalars else [args[i] for i in self.tensors]
        for plan, x in zip(self.plans, tensors, strict=True):
            found = plan.plain(x)
            if found is None:
                return None
            pointers.append(found[0])
            values += found[1]
        given: Given | None = _NOTHING_GIVEN
        if out is not None or self.state:
            given = self._plain_outputs(tensors, pointers, out)
        self._write(slot, args, values, pointers)
        return given

    def write_any(self, slot: Slot, args: Sequence[Any], out: Sequence[Any] | None) -> Given:
        """Write arguments of any kind that can be served; raises the error that says what is wrong with one."""
        taken = [plan.take(args[i]) for plan, i in zip(self.plans, self.tensors, strict=True)]
        self._check_state(taken)
        outputs = () if out is None else self._take_outputs(out, taken)
        self._write(slot, args, [n for t in taken for n in t.region], [t.address for t in taken])
        return Given(outputs, torch=any(is_torch(t.owner) for t in taken))

    def fit(self, plan: TensorPlan, given: Taken, shape: tuple[int, ...]) -> Any:
        """The object given for an output, if it has the very shape and is contiguous."""
        if given.region[: plan.rank] != shape:
            raise plan.refuse(f"its shape is {given.region[: plan.rank]}, expected {shape}")
        if given.region[plan.rank :] != contiguous_strides(shape):
            raise plan.refuse("it is not contiguous", help=f"np.empty({shape}, np.{plan.dtype.long_name})")
        return given.owner

    def _write(self, slot: Slot, args: Sequence[Any], values: list[int], pointers: list[int]) -> None:
        if self.scalars:
            values += [scalar_slot(self.inputs[i], args[i]) for i in self.scalars]
        self.layout.pack_a.pack_into(slot.dims, 0, *values)
        self.layout.pack_inputs.pack_into(slot.buffers, 0, *pointers)

    def _plain_outputs(self, tensors: Sequence[Any], pointers: list[int], out: Sequence[Any] | None) -> Given | None:
        """Given outputs that are plain, if all that is written may be and overlaps nothing; contiguous memory, so ranges decide."""
        ranges = [(begin, begin + x.nbytes) for begin, x in zip(pointers, tensors, strict=True)]
        if not all(tensors[i].flags.writeable for i in self.state):
            return None
        written = [ranges[i] for i in self.state]
        outputs: list[Taken | None] = []
        for plan, alias, x in zip(self.results, self.aliases, out or (), strict=False):
            if x is None:
                outputs.append(None)
                continue
            found = plan.plain(x)
            if found is None or alias is not None or not x.flags.writeable:
                return None
            outputs.append(Taken(*found, x, True, plan.dtype.itemsize))
            ranges.append((found[0], found[0] + x.nbytes))
            written.append(ranges[-1])
        for begin, end in written:
            if sum(begin < e and b < end for b, e in ranges) > 1:  # it always meets itself
                return None
        return Given(outputs, torch=False)

    def _check_state(self, taken: list[Taken]) -> None:
        """State must be writable, and nobody else may look at its memory during the call."""
        for i in self.state:
            plan, mine = self.plans[i], taken[i]
            plan.check_writable(mine, "it is updated in place")
            for k, (other_plan, other) in enumerate(zip(self.plans, taken, strict=True)):
                if k != i and mine.overlaps(other):
                    name = other_plan.input.name
                    what = f"it is updated in place, and shares memory with argument `{name}`"
                    raise plan.refuse(what, help=f"pass a copy: {name}.copy()")

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
