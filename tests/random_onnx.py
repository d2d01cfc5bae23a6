"""Random ONNX models of some operators each, over tensors with dims `n` and `m`: what importer and onnx.reference must agree on.

model = random_model(random.Random(7), operators=8)
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

DIMS = {"n": 3, "m": 5}  # dims that are symbols in a model, with values that no constant has, so that shapes tell them apart
Shape = tuple[Any, ...]  # of integers and names of dims


class Made(NamedTuple):
    """A tensor of f32 in a model."""

    name: str
    shape: Shape


class Maker:
    """Adds nodes to a model."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.rng = np.random.default_rng(dice.randrange(1 << 30))
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.values: list[Made] = []

    def node(self, op: str, inputs: list[str], **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"{op}_{len(self.nodes)}", **attributes))
        return name

    def literal(self, array: Any) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def floats(self, *shape: int) -> str:
        return self.literal(self.rng.standard_normal(shape).astype(np.float32))

    def ints(self, *numbers: int) -> str:
        return self.literal(np.array(numbers, np.int64))

    def one(self, least: int = 0) -> Made:
        return self.dice.choice([v for v in self.values if len(v.shape) >= least])

    def axis(self, v: Made) -> int:
        return self.dice.randrange(len(v.shape))

    def fixed(self, v: Made) -> list[int]:
        """Axes whose extents are numbers."""
        return [k for k, n in enumerate(v.shape) if isinstance(n, int)]


def _unary(m: Maker) -> Made:
    v = m.one()
    op = m.dice.choice(["Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Erf", "Softplus", "Elu", "HardSigmoid", "Ceil", "Sin", "Sign", "Selu"])
    return Made(m.node(op, [v.name]), v.shape)


def _binary(m: Maker) -> Made:
    v = m.one()
    others = [w for w in m.values if len(w.shape) <= len(v.shape) and v.shape[len(v.shape) - len(w.shape) :] == w.shape]
    w = m.dice.choice(others)
    return Made(m.node(m.dice.choice(["Add", "Sub", "Mul", "Max", "Min"]), [v.name, w.name]), v.shape)


def _with_row(m: Maker) -> Made:
    v = m.one(1)
    row = m.floats(v.shape[-1]) if isinstance(v.shape[-1], int) else m.floats(1)
    return Made(m.node(m.dice.choice(["Add", "Mul"]), [v.name, row]), v.shape)


def _product(m: Maker) -> Made | None:
    v = m.one(2)
    if not isinstance(v.shape[-1], int):
        return None
    width = m.dice.choice([2, 4, 7])
    return Made(m.node("MatMul", [v.name, m.floats(v.shape[-1], width)]), (*v.shape[:-1], width))


def _turn(m: Maker) -> Made:
    v = m.one(2)
    order = m.dice.sample(range(len(v.shape)), len(v.shape))
    return Made(m.node("Transpose", [v.name], perm=order), tuple(v.shape[k] for k in order))


def _reduce(m: Maker) -> Made:
    v = m.one(1)
    axis, keep = m.axis(v), m.dice.randrange(2)
    op = m.dice.choice(["ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare"])
    shape = tuple(1 if k == axis else n for k, n in enumerate(v.shape) if keep or k != axis)
    return Made(m.node(op, [v.name], axes=[axis], keepdims=keep), shape)


def _along(m: Maker) -> Made:
    v = m.one(1)
    op = m.dice.choice(["Softmax", "LogSoftmax", "CumSum"])
    if op == "CumSum":
        return Made(m.node(op, [v.name, m.literal(np.int64(m.axis(v)))], reverse=m.dice.randrange(2)), v.shape)
    return Made(m.node(op, [v.name], axis=m.axis(v)), v.shape)


def _joined(m: Maker) -> Made | None:
    v = m.one(1)
    axes = m.fixed(v)
    if not axes:
        return None
    axis = m.dice.choice(axes)
    return Made(m.node("Concat", [v.name, v.name], axis=axis), tuple(2 * n if k == axis else n for k, n in enumerate(v.shape)))


def _sliced(m: Maker) -> Made | None:
    v = m.one(1)
    axes = [k for k in m.fixed(v) if v.shape[k] > 1]
    if not axes:
        return None
    axis = m.dice.choice(axes)
    n, step = v.shape[axis], m.dice.choice([1, 2, -1])
    start, stop = (1, n) if step > 0 else (n - 1, -n - 1)
    size = len(range(n)[slice(start, None if stop < 0 else stop, step)])
    shape = tuple(size if k == axis else e for k, e in enumerate(v.shape))
    return Made(m.node("Slice", [v.name, m.ints(start), m.ints(stop), m.ints(axis), m.ints(step)]), shape)


def _flat(m: Maker) -> Made | None:
    """A reshape by a shape that the model computes: the first dim stays, the rest becomes one."""
    v = m.one(2)
    if not all(isinstance(n, int) for n in v.shape[1:]):
        return None
    first = m.node("Gather", [m.node("Shape", [v.name]), m.ints(0)], axis=0)
    shape = m.node("Concat", [first, m.ints(-1)], axis=0)
    return Made(m.node("Reshape", [v.name, shape]), (v.shape[0], int(np.prod(v.shape[1:]))))


def _from_sizes(m: Maker) -> Made:
    """Numbers that the model computes from shapes alone, which stay symbolic as long as they can; then as a tensor, or added to one."""
    v = m.one(1)
    numbers, count = m.node("Shape", [v.name]), len(v.shape)
    for _ in range(m.dice.randrange(1, 5)):
        numbers, count = m.dice.choice(SIZES)(m, numbers, count)
    as_float = m.node("Cast", [numbers], to=TensorProto.FLOAT)
    if m.dice.random() < 0.5:
        return Made(as_float, (count,))
    return Made(m.node("Add", [v.name, m.node("ReduceMax", [as_float], keepdims=0)]), v.shape)


def _size_arithmetic(m: Maker, numbers: str, count: int) -> tuple[str, int]:
    op = m.dice.choice(["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max"])
    return m.node(op, [numbers, m.ints(m.dice.choice([2, 3, 4]))]), count


def _size_sign(m: Maker, numbers: str, count: int) -> tuple[str, int]:
    return m.node("Abs", [m.node("Neg", [numbers])] if m.dice.random() < 0.5 else [numbers]), count


def _size_compared(m: Maker, numbers: str, count: int) -> tuple[str, int]:
    op = m.dice.choice(["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"])
    cond = m.node(op, [numbers, m.ints(m.dice.choice([1, 3, 4]))])
    if m.dice.random() < 0.4:
        cond = m.node("Not", [cond])
    if m.dice.random() < 0.4:
        cond = m.node(m.dice.choice(["And", "Or"]), [cond, m.node("Greater", [numbers, m.ints(2)])])
    return m.node("Where", [cond, numbers, m.ints(m.dice.choice([0, 7]))]), count


def _size_reduced(m: Maker, numbers: str, count: int) -> tuple[str, int]:
    op = m.dice.choice(["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"])
    if op == "ReduceSum":
        return m.node(op, [numbers, m.ints(m.dice.choice([0, -1]))] if m.dice.random() < 0.5 else [numbers], keepdims=1), 1
    return m.node(op, [numbers], axes=[0], keepdims=1), 1


def _size_joined(m: Maker, numbers: str, count: int) -> tuple[str, int]:
    if m.dice.random() < 0.5:
        return m.node("Concat", [numbers, m.ints(2, 5)], axis=0), count + 2
    return m.node("Concat", [m.ints(3), numbers], axis=0), count + 1


def _size_sliced(m: Maker, numbers: str, count: int) -> tuple[str, int]:
    """A part of the numbers, from either end; the bounds are known, or sizes themselves, which a run knows first."""
    start, stop, step = m.dice.choice([(0, 1, 1), (-1, count, 1), (0, 9, 1), (-1, -9, -1), (0, -1, 1), (1, 9, 2)])
    left = len(range(count)[slice(start, None if stop == -9 else stop, step)])
    if not left:
        return numbers, count
    return m.node("Slice", [numbers, m.ints(start), m.ints(stop), m.ints(0), m.ints(step)]), left


def _size_gathered(m: Maker, numbers: str, count: int) -> tuple[str, int]:
    which = [m.dice.randrange(-count, count) for _ in range(m.dice.choice([1, 2, 3]))]
    return m.node("Gather", [numbers, m.ints(*which)], axis=0), len(which)


def _size_reshaped(m: Maker, numbers: str, count: int) -> tuple[str, int]:
    """There and back again, by other dims."""
    kind = m.dice.randrange(4)
    if kind == 0:
        return m.node("Squeeze", [m.node("Unsqueeze", [numbers, m.ints(0)]), m.ints(0)]), count
    if kind == 1:
        return m.node("Reshape", [m.node("Transpose", [m.node("Reshape", [numbers, m.ints(-1, 1)])], perm=[1, 0]), m.ints(count)]), count
    if kind == 2 and count > 1:
        first = f"s{len(m.nodes)}"
        m.nodes.append(helper.make_node("Split", [numbers, m.ints(1, count - 1)], [first, f"{first}b"], name=first, axis=0))
        return m.node("Concat", [f"{first}b", first], axis=0), count
    return m.node("Cast", [m.node("Floor", [m.node("Cast", [numbers], to=TensorProto.FLOAT)])], to=TensorProto.INT64), count


SIZES: tuple[Callable[[Maker, str, int], tuple[str, int]], ...] = (
    _size_arithmetic, _size_arithmetic, _size_sign, _size_compared, _size_reduced, _size_sliced, _size_gathered, _size_reshaped,
    _size_joined,
)  # fmt: skip


def _cut_by_size(m: Maker) -> Made | None:
    """A vector of numbers of which a size says how much is taken: that is known in a run only."""
    v = m.one(1)
    axes = [k for k, n in enumerate(v.shape) if not isinstance(n, int)]
    if not axes:
        return None
    size = m.node("Gather", [m.node("Shape", [v.name]), m.ints(m.dice.choice(axes))], axis=0)
    other = m.node("Concat", [m.node("Shape", [v.name]), m.ints(1, 2, 3, 4, 5, 6, 7, 8)], axis=0)
    part = m.node("Slice", [other, m.ints(0), m.node("Min", [size, m.ints(3)]), m.ints(0)])
    return Made(m.node("Cast", [m.node("ReduceSum", [part, m.ints(0)], keepdims=1)], to=TensorProto.FLOAT), (1,))


def _new_axis(m: Maker) -> Made | None:
    v = m.one()
    if len(v.shape) > 3:
        return None
    axis = m.dice.randrange(len(v.shape) + 1)
    return Made(m.node("Unsqueeze", [v.name, m.ints(axis)]), (*v.shape[:axis], 1, *v.shape[axis:]))


def _gathered(m: Maker) -> Made:
    v = m.one(1)
    axis = m.axis(v)
    return Made(m.node("Gather", [v.name, m.ints(0, -1)], axis=axis), tuple(2 if k == axis else n for k, n in enumerate(v.shape)))


def _padded(m: Maker) -> Made | None:
    v = m.one(1)
    axes = m.fixed(v)
    if not axes:
        return None
    axis, pads = m.dice.choice(axes), [0] * (2 * len(v.shape))
    pads[axis], pads[axis + len(v.shape)] = 1, 2
    node = m.node("Pad", [v.name, m.ints(*pads), m.literal(np.float32(0.5))], mode="constant")
    return Made(node, tuple(n + 3 if k == axis else n for k, n in enumerate(v.shape)))


def _chosen(m: Maker) -> Made:
    v = m.one()
    positive = m.node("Greater", [v.name, m.literal(np.float32(0.1))])
    return Made(m.node("Where", [positive, v.name, m.node("Neg", [v.name])]), v.shape)


def _place(m: Maker) -> Made:
    v = m.one(1)
    axis = m.axis(v)
    found = m.node("Cast", [m.node("ArgMax", [v.name], axis=axis, keepdims=1)], to=TensorProto.FLOAT)
    return Made(found, tuple(1 if k == axis else n for k, n in enumerate(v.shape)))


def _normed(m: Maker) -> Made | None:
    v = m.one(2)
    if not isinstance(v.shape[-1], int):
        return None
    return Made(m.node("LayerNormalization", [v.name, m.floats(v.shape[-1]), m.floats(v.shape[-1])], axis=-1, epsilon=1e-3), v.shape)


OPERATORS: tuple[Callable[[Maker], Made | None], ...] = (
    _unary, _unary, _binary, _binary, _with_row, _product, _turn, _reduce, _along, _joined, _sliced, _flat, _new_axis, _gathered, _padded,
    _chosen, _place, _normed, _from_sizes, _from_sizes, _cut_by_size,
)  # fmt: skip


def random_model(dice: random.Random, operators: int) -> Any:
    """A model of so many steps; its results are the last three tensors."""
    m = Maker(dice)
    shapes: list[Shape] = [("n", 4), ("n", 6, "m"), ("m", 4)]
    m.values = [Made(f"x{k}", s) for k, s in enumerate(shapes)]
    for _ in range(operators):
        found = dice.choice(OPERATORS)(m)
        if found is not None and np.prod([DIMS.get(n, n) for n in found.shape]) <= 4096:
            m.values.append(found)
    infos = [helper.make_tensor_value_info(f"x{k}", TensorProto.FLOAT, s) for k, s in enumerate(shapes)]
    results = [helper.make_tensor_value_info(v.name, TensorProto.FLOAT, v.shape) for v in m.values[3:][-3:]]
    graph = helper.make_graph(m.nodes, "random", infos, results, m.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
