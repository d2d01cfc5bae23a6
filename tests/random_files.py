"""Random ONNX files: the same small model with its weights stored in every way that the format has, and with one thing wrong.

file = random_file(7, folder)     # writes external data into the folder
file.source                       # a path, or bytes; what the model computes is in `wanted`, None where it has to be refused
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper, numpy_helper

Array = Any
F = TensorProto.FLOAT
# Element types that weights may have, each cast to f32 by the model: what they are in numpy, and the field that lists their elements.
TYPES: dict[int, tuple[Any, str]] = {
    F: (np.float32, "float_data"),
    TensorProto.DOUBLE: (np.float64, "double_data"),
    TensorProto.FLOAT16: (np.float16, "int32_data"),
    TensorProto.BFLOAT16: (ml_dtypes.bfloat16, "int32_data"),
    TensorProto.INT8: (np.int8, "int32_data"),
    TensorProto.UINT8: (np.uint8, "int32_data"),
    TensorProto.INT16: (np.int16, "int32_data"),
    TensorProto.INT32: (np.int32, "int32_data"),
    TensorProto.INT64: (np.int64, "int64_data"),
    TensorProto.UINT32: (np.uint32, "uint64_data"),
    TensorProto.UINT64: (np.uint64, "uint64_data"),
    TensorProto.BOOL: (np.bool_, "int32_data"),
}


@dataclass
class RandomFile:
    """A model, its argument, and what it computes."""

    source: Any
    x: Array
    wanted: Array | None
    story: list[str] = field(default_factory=list)


class Writer:
    """Stores the weights of a model."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.dice, self.folder, self.seed = random.Random(f"file {seed}"), folder, seed
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.dense: list[Any] = []
        self.sparse: list[Any] = []
        self.story: list[str] = []

    def tensor(self, array: Array, kind: int, name: str) -> Any:
        """A tensor, as bytes or element by element."""
        proto = TensorProto(name=name, data_type=kind, dims=array.shape)
        own, listed = TYPES[kind]
        if self.dice.random() < 0.5:
            proto.raw_data = array.astype(own).tobytes()
            self.story.append(f"{name} as bytes")
        else:
            elements = array.astype(own).reshape(-1)
            coded = elements.view(np.uint16) if kind in (TensorProto.FLOAT16, TensorProto.BFLOAT16) else elements
            getattr(proto, listed).extend(coded.astype(np.int32).tolist() if kind == TensorProto.BOOL else coded.tolist())
            self.story.append(f"{name} in {listed}")
        return proto

    def weight(self, array: Array, name: str) -> str:
        """A weight as f32, however it is stored; its numbers are small and whole, so that every type holds them."""
        kind = self.dice.choice(list(TYPES))
        array = (array > 0).astype(np.int64) if kind == TensorProto.BOOL else abs(array) if TYPES[kind][0](0).dtype.kind == "u" else array
        self.arrays[name] = array.astype(np.float32)
        self.dice.choice([self.plain, self.sparsely, self.sparsely, self.outside, self.constant])(array, kind, name)
        if kind == F:
            return name
        self.nodes.append(helper.make_node("Cast", [name], [f"{name}_f"], to=F))
        return f"{name}_f"

    def plain(self, array: Array, kind: int, name: str) -> None:
        self.dense.append(self.tensor(array, kind, name))

    def constant(self, array: Array, kind: int, name: str) -> None:
        if self.dice.random() < 0.3 and kind == F:
            numbers = array.reshape(-1).astype(np.float32).tolist()
            self.nodes.append(helper.make_node("Constant", [], [f"{name}_flat"], value_floats=numbers))
            self.dense.append(numpy_helper.from_array(np.array(array.shape, np.int64), f"{name}_shape"))
            self.nodes.append(helper.make_node("Reshape", [f"{name}_flat", f"{name}_shape"], [name]))
        elif self.dice.random() < 0.3:
            self.nodes.append(helper.make_node("Constant", [], [name], sparse_value=self.as_sparse(array, kind, name)))
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=self.tensor(array, kind, name)))

    def sparsely(self, array: Array, kind: int, name: str) -> None:
        self.sparse.append(self.as_sparse(array, kind, name))

    def as_sparse(self, array: Array, kind: int, name: str) -> Any:
        """The elements that are not 0, with one index each, or one for each dim."""
        flat = np.flatnonzero(array)
        values = self.tensor(array.reshape(-1)[flat], kind, name)
        places = np.stack(np.unravel_index(flat, array.shape), 1) if self.dice.random() < 0.5 else flat
        self.story.append(f"{name} is sparse, its indices are {places.shape}")
        return helper.make_sparse_tensor(values, numpy_helper.from_array(places.astype(np.int64), f"{name}_at"), list(array.shape))

    def outside(self, array: Array, kind: int, name: str) -> None:
        """In a file beside the model, which may hold other things before and behind."""
        data, before = array.astype(TYPES[kind][0]).tobytes(), self.dice.choice([0, 0, 64])
        path = f"{name}_{self.seed}.bin"
        (self.folder / path).write_bytes(bytes(before) + data + bytes(self.dice.choice([0, 8]) if before else 0))
        proto = TensorProto(name=name, data_type=kind, dims=array.shape, data_location=1)
        entries = {"location": path} | ({"offset": str(before), "length": str(len(data))} if before or self.dice.random() < 0.5 else {})
        for key, value in entries.items():
            proto.external_data.add(key=key, value=value)
        self.dense.append(proto)
        self.story.append(f"{name} is outside")

    def model(self) -> Any:
        """x @ w + b, where `w` and `b` are stored in some way."""
        self.arrays: dict[str, Array] = {}
        w, b = (self.weight(self.rng.integers(-3, 4, shape), name) for name, shape in (("w", (3, 4)), ("b", (4,))))
        self.nodes += [helper.make_node("MatMul", ["x", w], ["t"], name="product"), helper.make_node("Add", ["t", b], ["y"], name="sum")]
        x, y = (helper.make_tensor_value_info(name, F, ["n", size]) for name, size in (("x", 3), ("y", 4)))
        graph = helper.make_graph(self.nodes, "g", [x], [y], self.dense, sparse_initializer=self.sparse)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def random_file(seed: int, folder: Path) -> RandomFile:
    """The file of a seed: half of them have something wrong."""
    writer = Writer(seed, folder)
    model, dice = writer.model(), writer.dice
    x = writer.rng.integers(-3, 4, (dice.choice([1, 2, 5]), 3)).astype(np.float32)
    made = RandomFile(model, x, x @ writer.arrays["w"] + writer.arrays["b"], writer.story)
    as_bytes = False
    if dice.random() < 0.5:
        breaks = list(BREAKS)
        dice.shuffle(breaks)
        broken = next(b for b in breaks if b(model, dice))
        made.story.append(f"broken: {broken.__name__}")
        made.wanted, as_bytes = None, broken is without_a_folder
    path = folder / f"model_{seed}.onnx"
    path.write_bytes(model.SerializeToString())
    made.source = path.read_bytes() if as_bytes else path
    return made


# What breaks a model: each answers whether the model has something to break in that way.


def _outside(model: Any) -> list[Any]:
    return [t for t in model.graph.initializer if t.data_location == 1]


def _inside(model: Any) -> list[Any]:
    return [t for t in model.graph.initializer if t.data_location != 1 and not t.name.endswith("_shape")]


def without_a_folder(model: Any, dice: random.Random) -> bool:
    return bool(_outside(model))


def data_that_is_not_there(model: Any, dice: random.Random) -> bool:
    for t in _outside(model):
        entries = {e.key: e for e in t.external_data}
        kind = dice.choice(["name", "away", "offset", "length"])
        if kind in ("name", "away") or kind not in entries:
            entries["location"].value = "../w.bin" if kind == "away" else "nothing.bin"
        else:
            entries[kind].value = (
                dice.choice(["-1", str(1 << 40), "12", "many"]) if kind == "length" else dice.choice(["-8", str(1 << 40), "x"])
            )
        return True
    return False


def elements_too_few(model: Any, dice: random.Random) -> bool:
    for t in _inside(model):
        fields = [f for f in ("raw_data", *(name for _, name in TYPES.values())) if len(getattr(t, f))]
        if fields == ["raw_data"]:
            t.raw_data = t.raw_data[:-1] if dice.random() < 0.5 else t.raw_data + b"\0"
        elif fields:
            values = getattr(t, fields[0])
            values.append(values[0]) if dice.random() < 0.5 else values.pop()
        return bool(fields)
    return False


def no_such_type(model: Any, dice: random.Random) -> bool:
    for t in _inside(model):
        t.data_type = dice.choice([0, 99, TensorProto.STRING, TensorProto.COMPLEX64])
        return True
    return False


def a_negative_dim(model: Any, dice: random.Random) -> bool:
    for t in _inside(model):
        t.dims[0] = dice.choice([-1, -3, 1 << 50])
        return True
    return False


def segments(model: Any, dice: random.Random) -> bool:
    for t in _inside(model):
        t.segment.begin, t.segment.end = 0, 1
        return True
    return False


def places_outside(model: Any, dice: random.Random) -> bool:
    """Indices of a sparse tensor that are too large, negative, too many, or of another rank."""
    for s in model.graph.sparse_initializer:
        places = numpy_helper.to_array(s.indices).copy()
        if not places.size:
            return False
        kind = dice.choice(["large", "negative", "fewer", "wide"])
        if kind in ("large", "negative"):
            places.reshape(-1)[dice.randrange(places.size)] = (1 << 20) if kind == "large" else -1
        elif kind == "fewer":
            places = places[:-1]
        else:
            places = np.concatenate([places.reshape(len(places), -1)] * 3, 1)
        s.indices.CopyFrom(numpy_helper.from_array(places, s.indices.name))
        return True
    return False


def two_of_a_name(model: Any, dice: random.Random) -> bool:
    kind = dice.choice(["initializer", "input", "sparse", "result", "nameless"])
    graph = model.graph
    if kind == "input":
        graph.input.append(graph.input[0])
    elif kind == "result":
        graph.node.append(helper.make_node("Relu", ["x"], ["t"]))
    elif kind == "sparse" and graph.sparse_initializer:
        graph.sparse_initializer.append(graph.sparse_initializer[0])
    elif kind == "nameless":
        graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), ""))
    elif graph.initializer:
        graph.initializer.append(graph.initializer[0])
    else:
        return False
    return True


def no_such_opset(model: Any, dice: random.Random) -> bool:
    if dice.random() < 0.5:
        model.opset_import[0].version = dice.choice([0, -1, 9999])
    else:
        model.opset_import.append(helper.make_opsetid(dice.choice(["", "ai.onnx"]), 13))
    return True


def nobody_makes_it(model: Any, dice: random.Random) -> bool:
    """A value that no node makes, or that a later one does."""
    kind, graph = dice.randrange(3), model.graph
    if kind == 0:
        graph.output[0].name = "nothing"
    elif kind == 1:
        graph.node[-1].input[0] = "nothing"
    else:
        last = graph.node.pop()
        graph.node.insert(0, last)
    return True


def no_sequence(model: Any, dice: random.Random) -> bool:
    """A tensor where an operator takes a sequence, and a sequence where it takes a tensor."""
    graph = model.graph
    last = graph.node.pop()
    kind = dice.choice(["SequenceAt", "SequenceLength", "ConcatFromSequence", "Relu", "SequenceInsert", "SequenceErase"])
    graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), "zero"))
    made = [helper.make_node("SequenceConstruct", ["t"], ["some"])] if kind == "Relu" else []
    inputs = {"SequenceAt": ["t", "zero"], "SequenceErase": ["t", "zero"], "SequenceInsert": ["t", "t"], "Relu": ["some"]}.get(kind, ["t"])
    attributes = {"axis": 0} if kind == "ConcatFromSequence" else {}
    graph.node.extend([*made, helper.make_node(kind, inputs, ["odd"], **attributes)])
    last.input[0] = "odd"
    graph.node.append(last)
    return True


def no_such_operator(model: Any, dice: random.Random) -> bool:
    node = model.graph.node[-1]
    if dice.random() < 0.5:
        node.op_type = "Sums"
    else:
        node.domain = "nowhere"
    return True


BREAKS: tuple[Callable[[Any, random.Random], bool], ...] = (
    without_a_folder, data_that_is_not_there, elements_too_few, no_such_type, a_negative_dim, segments, *[places_outside] * 5,
    two_of_a_name, no_such_opset, nobody_makes_it, no_sequence, no_sequence, no_such_operator,
)  # fmt: skip
