"""Random models of one operator: a case of ONNX's own suite with something changed.

    case = random_node(seed)
    case.model, case.inputs, case.wanted      # wanted is None where nobody says what it should be

Some changes keep the meaning: dims of inputs without a value, inputs that become initializers, another version of the opset under which the
operator is the same. Then the suite says what the results are, and nothing may be refused. Others change it: attributes,
inputs left out, other extents. Then the standard's evaluator says what the results are, and we may refuse; a model that it does not take
has to be refused in words, or run, but never fail in another way.
"""

from __future__ import annotations

import os
import random
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnx_suite import Case, missing, node_cases, reason_of

Array = Any
# Operators to draw more often, by name: what `tools/mutants.py` asks for when it changed an importer.
FOCUS = frozenset(os.environ.get("PLIANT_OPERATORS", "").split())


@dataclass
class RandomNode:
    """A model, its inputs, what results it has, and what was done to it."""

    name: str
    model: Any
    inputs: list[Any]
    wanted: list[Any] | None
    rtol: float
    atol: float
    done: list[str] = field(default_factory=list)
    same: bool = True  # the meaning is that of the suite's case
    free: bool = False  # dims of inputs have no value
    left_out: Callable[[BaseException], str | None] = reason_of


@cache
def usable() -> tuple[Case, ...]:
    """The cases that are run at all: none of training, none of random numbers, none that is known to be missing."""
    out = r"test_(adagrad|adam|momentum|nesterov|bernoulli|training_dropout|dropout|image_decoder).*"
    return tuple(c for c in node_cases() if missing(c.name) is None and not re.match(out, c.name))


@cache
def by_operator() -> dict[str, list[Any]]:
    """Attributes that nodes of the suite have, by their operator."""
    found: dict[str, list[Any]] = {}
    for case in usable():
        for node in case.load()[0].graph.node:
            found.setdefault(node.op_type, []).extend(node.attribute)
    return found


@cache
def focused() -> tuple[Case, ...]:
    """The cases that have one of the operators to draw more often."""
    return tuple(c for c in usable() if any(n.op_type in FOCUS for n in c.load()[0].graph.node)) if FOCUS else ()


def random_node(seed: int) -> RandomNode:
    """The model of a seed."""
    dice = random.Random(f"node {seed}")
    case = dice.choice(focused() if focused() and dice.random() < 0.7 else usable())
    source, data = case.load()
    model = onnx.ModelProto()
    model.CopyFrom(source)
    inputs, outputs = dice.choice(data)
    made = RandomNode(case.name, model, list(inputs), list(outputs), case.rtol, case.atol)
    change = Change(made, dice)
    if dice.random() < 0.7:
        dice.choice([change.attribute, change.attribute, change.attribute, change.left_out, change.extents, change.values])()
    if dice.random() < 0.25:
        change.opset()
    if dice.random() < 0.4:
        change.weights()
    if dice.random() < 0.4:
        change.free_dims()
    if not made.same:
        made.wanted = evaluated(made)
        largest = [float(np.abs(w[np.isfinite(w)]).max(initial=0)) for w in made.wanted or () if w.dtype.kind == "f"]
        made.atol = max([made.atol, *(1e-5 * v for v in largest)])  # sums of large numbers may be near 0
    return made


def evaluated(made: RandomNode) -> list[Any] | None:
    """What the standard's evaluator gives; None where it fails. Its checker is not asked: some models end the process there."""
    if any(unsaid(node) for node in made.model.graph.node):
        return None
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            names = [i.name for i in made.model.graph.input]
            found = ReferenceEvaluator(made.model).run(None, dict(zip(names, made.inputs, strict=True)))
    except Exception:
        return None
    if not all(isinstance(v, np.ndarray | np.generic) and v.dtype != object for v in found):
        return None
    return [np.asarray(v) for v in found]


def unsaid(node: Any) -> bool:
    """Whether the evaluator says something else than the standard's text about a node."""
    texts = [a.s for a in node.attribute if a.type == onnx.AttributeProto.STRING]
    if node.op_type == "Resize":  # of an extent of 1, the text has the place 0, the evaluator -0.5
        return b"cubic" in texts and b"pytorch_half_pixel" in texts
    lists = {a.name: list(a.ints) for a in node.attribute if a.type == onnx.AttributeProto.INTS}
    if node.op_type == "MaxPool":  # whose pads in front and behind the evaluator mixes up
        pads = lists.get("pads", [])
        return pads[: len(pads) // 2] != pads[len(pads) // 2 :]
    if node.op_type == "AveragePool":  # whose strides the evaluator does not heed where windows have holes
        return any(d > 1 for d in lists.get("dilations", ())) and any(s > 1 for s in lists.get("strides", ()))
    if node.op_type in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
        return True  # labels that are no class, and reductions that there are not: the standard's own function differs from its evaluator
    return node.op_type in ("Cast", "CastLike")  # numbers that the other type does not hold may become anything


class Change:
    """The changes."""

    def __init__(self, made: RandomNode, dice: random.Random) -> None:
        self.made, self.dice = made, dice
        self.graph = made.model.graph
        self.rng = np.random.default_rng(dice.randrange(1 << 30))

    def changed(self, what: str) -> None:
        """The meaning is another one: so are the outputs' shapes, which the model no longer says."""
        self.made.done.append(what)
        self.made.same = False
        del self.graph.value_info[:]
        for o in self.graph.output:
            o.type.tensor_type.ClearField("shape")

    # The meaning stays.

    def free_dims(self) -> None:
        """Dims without a value: all, or some; equal ones under one name, now and then."""
        shared, share = self.dice.random() < 0.3, self.dice.choice([1.0, 0.5])
        values = [i for i in self.graph.input if i.type.WhichOneof("value") == "tensor_type"]
        for value in values:
            for k, d in enumerate(value.type.tensor_type.shape.dim):
                if self.dice.random() < share:
                    size = d.dim_value
                    d.Clear()
                    d.dim_param = f"d{size}" if shared else f"{value.name}_{k}"
                    self.made.free = True
        if self.made.free:
            self.made.done.append("free dims")
            del self.graph.value_info[:]
            for o in self.graph.output:
                for d in o.type.tensor_type.shape.dim:
                    d.Clear()

    def weights(self) -> None:
        """Inputs that the model holds itself."""
        for k in reversed(range(len(self.graph.input))):
            array = self.made.inputs[k]
            tensor = self.graph.input[k].type.WhichOneof("value") == "tensor_type" and isinstance(array, np.ndarray)
            if tensor and self.dice.random() < 0.5 and len(self.graph.input) > 1:
                kind = self.graph.input[k].type.tensor_type.elem_type
                if helper.np_dtype_to_tensor_dtype(array.dtype) != kind or array.dtype == object:
                    continue
                self.graph.initializer.append(numpy_helper.from_array(array, self.graph.input[k].name))
                self.made.done.append(f"{self.graph.input[k].name} is an initializer")
                del self.graph.input[k], self.made.inputs[k]

    def opset(self) -> None:
        """Another version of the opset that has every operator of the model as it is."""
        imported = next((o for o in self.made.model.opset_import if o.domain in ("", "ai.onnx")), None)
        if imported is None or self.made.model.functions:
            return
        now, least = imported.version, 1
        for node in self.graph.node:
            if node.domain or any(a.HasField("g") for a in node.attribute):
                return
            least = max(least, onnx.defs.get_schema(node.op_type, now).since_version)
        imported.version = self.dice.randint(max(least, 7), max(now, 7)) if least <= now else now
        self.made.done.append(f"opset {imported.version}")

    # The meaning is another one.

    def attribute(self) -> None:
        """An attribute that is changed, left out, or taken from another case of the operator."""
        node = self.dice.choice(self.graph.node)
        others = by_operator().get(node.op_type, [])
        kind = self.dice.random()
        if node.attribute and kind < 0.2:
            n = self.dice.randrange(len(node.attribute))
            what = f"without {node.attribute[n].name}"
            del node.attribute[n]
        elif others and (kind < 0.5 or not node.attribute):
            taken = self.dice.choice(others)
            kept = [a for a in node.attribute if a.name != taken.name]
            del node.attribute[:]
            node.attribute.extend([*kept, taken])
            what = f"{taken.name} of another case"
        elif node.attribute:
            a = self.dice.choice(node.attribute)
            what = self.number(a)
        else:
            return
        self.changed(what)

    def number(self, a: Any) -> str:
        """Another value of an attribute."""
        dice = self.dice
        if a.type == onnx.AttributeProto.INT:
            flag = all(o.i in (0, 1) for values in by_operator().values() for o in values if o.name == a.name)
            a.i = dice.choice([0, 1] if flag else [a.i + 1, a.i - 1, 0, 1, 2, -1, -a.i, 10**6])  # of a flag, the standard says no more
            return f"{a.name}={a.i}"
        if a.type == onnx.AttributeProto.INTS and a.ints:
            n = dice.randrange(len(a.ints))
            if dice.random() < 0.75:
                a.ints[n] = dice.choice([a.ints[n] + 1, a.ints[n] - 1, 0, 1, 2, -1])
            else:
                ints = [*a.ints[:n], *a.ints[n + 1 :]] if dice.random() < 0.5 else [*a.ints, a.ints[n]]
                del a.ints[:]
                a.ints.extend(ints)
            return f"{a.name}={list(a.ints)}"
        if a.type == onnx.AttributeProto.FLOAT:
            a.f = dice.choice([a.f + 0.5, a.f * 2, 1.0, 2.0, 0.25])  # not 0: some formulas divide by it
            return f"{a.name}={a.f}"
        if a.type == onnx.AttributeProto.STRING:
            words = [o.s for o in by_operator().get("", [])] + [b"nonsense", b"", a.s.lower(), a.s.upper()]
            a.s = dice.choice(words)
            return f"{a.name}={a.s!r}"
        return a.name

    def left_out(self) -> None:
        """An input that is not there: the last one, or any."""
        node = self.dice.choice(self.graph.node)
        if len(node.input) < 2:
            return
        n = self.dice.randrange(1, len(node.input))
        if n == len(node.input) - 1:
            del node.input[n]
        else:
            node.input[n] = ""
        self.changed(f"without input {n}")

    def extents(self) -> None:
        """Other extents of inputs: an axis of one, or all axes of that extent in all inputs."""
        arrays = [k for k, a in enumerate(self.made.inputs) if isinstance(a, np.ndarray) and a.ndim and a.dtype != object]
        if not arrays:
            return
        k = self.dice.choice(arrays)
        axis = self.dice.randrange(self.made.inputs[k].ndim)
        old = self.made.inputs[k].shape[axis]
        new = self.dice.choice([0, 1, 2, old + 1, old + 2, max(0, old - 1), 2 * old])
        together = self.dice.random() < 0.6
        for n in arrays:
            a = self.made.inputs[n]
            axes = [d for d in range(a.ndim) if a.shape[d] == old] if together else [axis] if n == k else []
            for d in axes:
                if not a.size:
                    continue
                a = np.take(a, np.arange(new) % old, axis=d) if old else a
            if axes and a.size <= 100_000:
                self.made.inputs[n] = np.ascontiguousarray(a)
                for d, size in zip(self.graph.input[n].type.tensor_type.shape.dim, a.shape, strict=False):
                    d.Clear()
                    d.dim_value = size
        self.changed(f"extent {new} for {old}")

    def values(self) -> None:
        """Other numbers of an input of integers."""
        arrays = [k for k, a in enumerate(self.made.inputs) if isinstance(a, np.ndarray) and a.dtype.kind in "iu" and a.size]
        if not arrays:
            return
        k = self.dice.choice(arrays)
        a = self.made.inputs[k].copy()
        flat = a.reshape(-1)
        n = self.dice.randrange(a.size)
        least = 0 if a.dtype.kind == "u" else -1
        flat[n] = self.dice.choice([max(least, int(flat[n]) - 1), min(100, int(flat[n]) + 1), 0, 1, least])
        self.made.inputs[k] = a
        self.changed(f"{self.graph.input[k].name}[{n}] = {flat[n]}")
