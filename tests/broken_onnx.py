"""ONNX models that are broken on purpose, made by a script: each with a part of what the error must say.

for name, data, says in broken_models():
    ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

F = TensorProto.FLOAT


def base() -> Any:
    """A small model that is right."""
    x = helper.make_tensor_value_info("x", F, ["n", 3, 8, 8])
    y = helper.make_tensor_value_info("y", F, None)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("MaxPool", ["b"], ["c"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Transpose", ["c"], ["d"], name="turn", perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["d", "shape"], ["e"], name="shape_it"),
        helper.make_node("Softmax", ["e"], ["y"], name="soft", axis=-1),
    ]
    w = helper.make_tensor("w", F, [4, 3, 3, 3], [0.5] * 108)
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [0, -1])
    graph = helper.make_graph(nodes, "g", [x], [y], [w, shape])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _changed(change: Callable[[Any], Any]) -> bytes:
    model = base()
    change(model)
    return bytes(model.SerializeToString())


def _attribute(model: Any, node: int, name: str, value: Any) -> None:
    kept = [a for a in model.graph.node[node].attribute if a.name != name]
    del model.graph.node[node].attribute[:]
    model.graph.node[node].attribute.extend([*kept, *([] if value is None else [helper.make_attribute(name, value)])])


# What is done to the base, and what the error says.
CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no graph": (lambda m: m.ClearField("graph"), "no graph"),
    "no opset": (lambda m: m.ClearField("opset_import"), 'no version of the domain ""'),
    "opset 0": (lambda m: setattr(m.opset_import[0], "version", 0), "opset 0"),
    "opset 999": (lambda m: setattr(m.opset_import[0], "version", 999), "opset 999"),
    "two opsets": (lambda m: m.opset_import.add(domain="ai.onnx", version=16), "two versions"),
    "no outputs": (lambda m: m.graph.ClearField("output"), "no outputs"),
    "an output of nothing": (lambda m: m.graph.output.add(name="z"), 'nothing computes the output "z"'),
    "an input twice": (lambda m: m.graph.input.add().CopyFrom(m.graph.input[0]), "of another one"),
    "an input without a name": (lambda m: setattr(m.graph.input[0], "name", ""), "an input has the name"),
    "an input without a type": (lambda m: m.graph.input[0].ClearField("type"), "of no type"),
    "an input without a rank": (lambda m: m.graph.input[0].type.tensor_type.ClearField("shape"), "its rank must be known"),
    "an input of type 99": (lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 99), "type 99"),
    "an input of strings": (lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 8), "string"),
    "a dim of -7": (lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[1], "dim_value", -7), "is -7"),
    "a huge dim": (lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[1], "dim_value", 1 << 62), "dim 1 of input"),
    "a wrong channel": (lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[1], "dim_value", 5), 'node "conv"'),
    "an initializer twice": (lambda m: m.graph.initializer.add().CopyFrom(m.graph.initializer[0]), "of another one"),
    "a weight without data": (lambda m: m.graph.initializer[0].ClearField("float_data"), '"w" has 0 elements'),
    "a weight cut off": (lambda m: m.graph.initializer[0].float_data.pop(), '"w" has 107 elements'),
    "a weight of -1 rows": (lambda m: m.graph.initializer[0].dims.__setitem__(0, -1), "has the shape (-1"),
    "a weight of 2**40 rows": (lambda m: m.graph.initializer[0].dims.__setitem__(0, 1 << 40), "more than a file may hold"),
    "a weight of type 0": (lambda m: setattr(m.graph.initializer[0], "data_type", 0), "the data type 0"),
    "a weight of strings": (lambda m: setattr(m.graph.initializer[0], "data_type", 8), "holds string"),
    "a weight in segments": (lambda m: m.graph.initializer[0].segment.SetInParent(), "in segments"),
    "raw data of 7 bytes": (lambda m: setattr(m.graph.initializer[0], "raw_data", b"1234567"), "has 7 bytes"),
    "a cycle": (lambda m: m.graph.node[1].input.__setitem__(0, "c"), 'node "relu" (Relu): nothing before it computes its input "c"'),
    "an input of nothing": (lambda m: m.graph.node[0].input.__setitem__(1, "nowhere"), '"nowhere"'),
    "a result twice": (lambda m: m.graph.node[2].output.__setitem__(0, "a"), '"a" is computed twice'),
    "an operator of nobody": (lambda m: setattr(m.graph.node[1], "op_type", "Frobnicate"), "Frobnicate: 1 node"),
    "a domain of nobody": (lambda m: setattr(m.graph.node[1], "domain", "other"), "other.Relu"),
    "too many inputs": (lambda m: m.graph.node[1].input.append("x"), "it has 2 inputs, 1 is expected"),
    "too few inputs": (lambda m: m.graph.node[0].input.pop(), "it has 1 inputs, 2 to 3 are expected"),
    "too many results": (lambda m: m.graph.node[1].output.append("more"), "it has 2 results"),
    "a missing attribute": (lambda m: _attribute(m, 2, "kernel_shape", None), 'attribute "kernel_shape" is missing'),
    "an unknown attribute": (lambda m: _attribute(m, 1, "color", 3), 'there is no attribute "color"'),
    "an attribute twice": (lambda m: m.graph.node[5].attribute.append(m.graph.node[5].attribute[0]), "is given twice"),
    "pads as text": (lambda m: _attribute(m, 0, "pads", "same"), 'attribute "pads" is a string, integers are expected'),
    "pads as floats": (lambda m: _attribute(m, 0, "pads", [1.0, 1.0]), 'attribute "pads" is floats'),
    "three pads": (lambda m: _attribute(m, 0, "pads", [1, 1, 1]), 'attribute "pads" has 3 numbers'),
    "negative strides": (lambda m: _attribute(m, 2, "strides", [-1, 2]), 'attribute "strides"'),
    "strides of 0": (lambda m: _attribute(m, 0, "strides", [0, 0]), 'attribute "strides"'),
    "dilations of 0": (lambda m: _attribute(m, 0, "dilations", [0, 1]), 'attribute "dilations"'),
    "a kernel shape of 0": (lambda m: _attribute(m, 2, "kernel_shape", [0, 2]), 'attribute "kernel_shape"'),
    "another kernel shape": (lambda m: _attribute(m, 0, "kernel_shape", [5, 5]), 'attribute "kernel_shape"'),
    "groups of 0": (lambda m: _attribute(m, 0, "group", 0), 'node "conv"'),
    "groups of 7": (lambda m: _attribute(m, 0, "group", 7), 'node "conv"'),
    "an auto_pad of nobody": (lambda m: _attribute(m, 0, "auto_pad", "ROUND"), 'auto_pad "ROUND"'),
    "a perm of 3": (lambda m: _attribute(m, 3, "perm", [0, 1, 2]), 'attribute "perm"'),
    "a perm twice": (lambda m: _attribute(m, 3, "perm", [0, 1, 1, 2]), 'attribute "perm"'),
    "axis 9": (lambda m: _attribute(m, 5, "axis", 9), "axis 9 of a tensor with 2 dims"),
    "two -1": (lambda m: m.graph.initializer[1].int64_data.__setitem__(0, -1), "more than one -1"),
    "a shape of -5": (lambda m: m.graph.initializer[1].int64_data.__setitem__(1, -5), "the shape"),
    "a shape of floats": (lambda m: m.graph.node[4].input.__setitem__(1, "w"), "which it does not take"),
}


def _field(number: int, data: bytes) -> bytes:
    """A field of a protobuf message that holds bytes."""
    size, length = len(data), b""
    while size >= 128:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


def _nested(depth: int) -> bytes:
    """Graphs in attributes of nodes in graphs, deeper than any library would write them: nothing but the nesting."""
    graph = b""
    for _ in range(depth):
        graph = _field(1, _field(4, b"If") + _field(5, _field(1, b"then_branch") + _field(6, graph)))
    return _field(7, graph)


def _functions(bodies: dict[str, list[str]]) -> bytes:
    """Functions that call each other: by name, the functions called one after the other."""
    model = base()
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.append(helper.make_node("f", ["x"], ["y"], domain="own", name="call"))
    model.opset_import.add(domain="own", version=1)
    for name, calls in bodies.items():
        chain = [helper.make_node(c, [f"v{k}"], [f"v{k + 1}"], domain="own" if c in bodies else "") for k, c in enumerate(calls)]
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        model.functions.append(helper.make_function("own", name, ["v0"], [f"v{len(calls)}"], chain, imports))
    return bytes(model.SerializeToString())


def broken_models() -> Iterator[tuple[str, bytes, str]]:
    """All of them: a name, the bytes, and a part of the message."""
    whole = base().SerializeToString()
    for k in range(60):
        yield f"cut off after {k} of 60 parts", whole[: len(whole) * k // 60], "onnx: "
    for name, (change, says) in CHANGES.items():
        yield name, _changed(change), says
    for depth in (50, 1000):
        yield f"graphs nested {depth} deep", _nested(depth), "onnx: "
    yield "a function that calls itself", _functions({"f": ["f"]}), "calls itself"
    yield "functions that call each other", _functions({"f": ["g"], "g": ["f"]}), "calls itself"
    chain = {f"f{k or ''}": [f"f{k + 1}"] * 12 for k in range(8)} | {"f8": ["Relu"]}
    yield "functions that multiply", _functions(chain), "expand to more than"
    yield from _broken_nodes()


SAMPLES = (
    "Add", "Conv", "ConvTranspose", "MaxPool", "AveragePool", "Gemm", "MatMul", "Concat", "Split", "Slice", "Gather", "Resize", "Pad",
    "TopK", "LSTM", "GRU", "Expand", "Tile", "Squeeze", "ReduceSum", "LayerNormalization", "BatchNormalization", "Einsum", "Cast",
    "OneHot", "ScatterND", "Where", "QuantizeLinear", "NonMaxSuppression", "CumSum",
    "GridSample", "DFT", "STFT", "MelWeightMatrix", "RoiAlign", "MaxRoiPool", "MaxUnpool", "Det", "Unique", "Scan",
)  # fmt: skip

# Operators with numbers that ask for too much, or make no sense: inputs (a shape, or a literal), attributes, and what is said.
_SENSELESS: tuple[tuple[str, list[Any], dict[str, Any], str], ...] = (
    ("MelWeightMatrix", [1 << 40, 1 << 40, 16000, 20.0, 8000.0], {}, "bins of"),
    ("MelWeightMatrix", [8, 16, 0, 20.0, 8000.0], {}, "rate 0"),
    ("HannWindow", [1 << 40], {}, "a window of"),
    ("DFT", [(4, 8, 3)], {"axis": 1}, "the last dim is 3"),
    ("DFT", [(4, 8, 2)], {"axis": 2}, "real and imaginary"),
    ("DFT", [(4, 8, 2), 0], {"axis": 1}, "0 points"),
    ("STFT", [(1, 8, 1), 0], {}, "a step of 0"),
    ("STFT", [(1, 8, 1), 2, None, 9], {}, "a window of 9"),
    ("GridSample", [(1, 2, 4, 4), (1, 3, 3, 3)], {}, "does not fit the image"),
    ("MaxUnpool", [(1, 1, 2, 2), [[[[0, 1], [2, 3]]]]], {"kernel_shape": [2]}, "kernel_shape"),
    ("Col2Im", [(1, 5, 5), [5, 5], [0, 1]], {}, "do not fit each other"),
    ("MaxRoiPool", [(1, 2, 4, 4), (1, 4)], {"pooled_shape": [2, 2]}, "pooled_shape"),
    ("Det", [(2, 3)], {}, "2 by 3"),
    ("Resize", [(1, 1, 4, 4), None, [1.0, 1.0, -1.0, 1.0]], {}, "scales"),
    ("Resize", [(1, 1, 4, 4), [0.0], [1.0, 1.0, 2.0, 2.0]], {"coordinate_transformation_mode": "tf_crop_and_resize"}, "a region of"),
    ("Tile", [(2, 2), [1 << 40, 1 << 40]], {}, ""),
    ("Expand", [(1, 1), [1 << 40, 1 << 40]], {}, ""),
    ("SplitToSequence", [(1 << 20, 1)], {}, "into a sequence"),
    ("BitCast", [(2, 2)], {"to": TensorProto.INT64}, ""),
    ("CausalConvWithState", [(1, 4, 8), (4, 1, 3)], {"activation": "relu"}, 'activation "relu"'),
    ("LinearAttention", [(1, 3, 8)] * 3, {"update_rule": "none", "q_num_heads": 2, "kv_num_heads": 2}, 'update_rule "none"'),
    ("NegativeLogLikelihoodLoss", [(3, 5), [0, 1, 2]], {"reduction": "max"}, 'reduction "max"'),
    ("SoftmaxCrossEntropyLoss", [(3, 5), [0, 1, 2]], {"reduction": "max"}, 'reduction "max"'),
)
_SINCE = {"BitCast": 26, "CausalConvWithState": 27, "LinearAttention": 27}  # operators that are newer than version 19


def _senseless(op: str, given: list[Any], attributes: dict[str, Any]) -> bytes:
    """A model of one node over inputs (tuples: their shapes) and literals."""
    names, infos, weights = [], [], []
    for k, item in enumerate(given):
        names.append("" if item is None else f"i{k}")
        if isinstance(item, tuple):
            infos.append(helper.make_tensor_value_info(names[-1], F, item))
        elif item is not None:
            array = np.asarray(item)
            array = array.astype(np.float32) if array.dtype.kind == "f" else array.astype(np.int64)
            weights.append(onnx.numpy_helper.from_array(array, names[-1]))
    node = helper.make_node(op, names, ["y"], name="it", **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", F, None)], weights)
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", _SINCE.get(op, 19))], ir_version=8).SerializeToString())


def _broken_nodes() -> Iterator[tuple[str, bytes, str]]:
    """Nodes of many operators with an attribute of nobody, without inputs, and with one of another type; some with senseless numbers."""
    for op, given, attributes, says in _SENSELESS:
        yield f"a senseless {op} ({says})", _senseless(op, given, attributes), says or 'node "it"'
    for op in SAMPLES:
        schema = onnx.defs.get_schema(op, 17)
        names = [f"i{k}" for k in range(max(schema.min_input, 1))]
        for kind in ("attribute", "inputs", "type"):
            node = helper.make_node(op, names if kind != "inputs" else [], ["y"], name="it")
            if kind == "attribute":
                node.attribute.append(helper.make_attribute("nobody", 1))
            elem = TensorProto.STRING if kind == "type" else F
            infos = [helper.make_tensor_value_info(n, elem, [2, 2]) for n in (names if kind != "inputs" else ["x"])]
            graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", F, None)])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
            yield f"{op} with a wrong {kind}", bytes(model.SerializeToString()), 'node "it"' if kind != "type" else "string"
