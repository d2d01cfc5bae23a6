"""A small random decoder as onnxruntime-genai exports language models: embeddings, GroupQueryAttention with a cache, products with
weights of 4-bit codes, norms with their residuals.

    model = decoder(layers=2, width=64, heads=4, kv=2, inner=128, words=100)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
BLOCK = 32
PLACES = 512  # of the tables of cosines and sines


class _Decoder:
    def __init__(self, level: int, seed: int) -> None:
        self.level, self.rng = level, np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def literal(self, name: str, array: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, op: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, outputs, name=f"/{outputs[0]}", domain=domain, **attributes))
        return outputs[0]

    def linear(self, x: str, name: str, k: int, n: int) -> str:
        """A product with a matrix (n, k) of codes, whose elements have a deviation of 1 / sqrt(k)."""
        blocks = k // BLOCK
        codes = self.rng.integers(0, 256, (n, blocks, BLOCK // 2)).astype(np.uint8)
        scale = (self.rng.random((n, blocks)) * 0.2 + 0.9) / (4.6 * np.sqrt(k))
        zeros = np.full((n, -(-blocks // 2)), 0x78, np.uint8)
        inputs = [x, self.literal(f"{name}.codes", codes), self.literal(f"{name}.scales", scale.astype(np.float32))]
        inputs.append(self.literal(f"{name}.zeros", zeros))
        return self.add("MatMulNBits", inputs, [name], MS, K=k, N=n, bits=4, block_size=BLOCK, accuracy_level=self.level)

    def norm_weight(self, name: str, width: int) -> str:
        return self.literal(name, (1 + 0.1 * self.rng.standard_normal(width)).astype(np.float32))


def decoder(layers: int, width: int, heads: int, kv: int, inner: int, words: int, level: int = 0, seed: int = 7) -> Any:
    """The model; `level` is the accuracy level of its products."""
    d, net = width // heads, _Decoder(level, seed)
    angles = np.arange(PLACES)[:, None] * (10000.0 ** (-np.arange(d // 2) * 2 / d))
    cos, sin = (net.literal(n, t(angles).astype(np.float32)) for n, t in (("cos", np.cos), ("sin", np.sin)))
    summed = net.add("ReduceSum", ["attention_mask", net.literal("one_axis", np.array([1]))], ["summed"], keepdims=0)
    less = net.add("Sub", [summed, net.literal("one", np.array(1))], ["less"])
    lengths = net.add("Cast", [less], ["lengths"], to=TensorProto.INT32)
    extents = net.add("Shape", ["attention_mask"], ["extents"])
    total = net.add("Gather", [extents, net.literal("second", np.array(1))], ["total_long"], axis=0)
    total = net.add("Cast", [total], ["total"], to=TensorProto.INT32)

    table = net.rng.standard_normal((words, width)).astype(np.float32)
    x = net.add("Gather", [net.literal("table", table), "input_ids"], ["embedded"], axis=0)
    normed = net.add("SimplifiedLayerNormalization", [x, net.norm_weight("norm0.w", width)], ["norm0"], axis=-1, epsilon=1e-5, stash_type=1)
    caches_in, caches_out = [], []
    for n in range(layers):
        past, present = ([f"{word}.{n}.{part}" for part in ("key", "value")] for word in ("past", "present"))
        caches_in, caches_out = caches_in + past, caches_out + present
        qkv = [net.linear(normed, f"l{n}.{part}", width, count * d) for part, count in (("q", heads), ("k", kv), ("v", kv))]
        net.add("GroupQueryAttention", [*qkv, *past, lengths, total, cos, sin], [f"l{n}.mixed", *present], MS,
                num_heads=heads, kv_num_heads=kv, do_rotary=1, scale=d**-0.5)  # fmt: skip
        out = net.linear(f"l{n}.mixed", f"l{n}.o", width, width)
        skip = net.norm_weight(f"l{n}.norm1.w", width)
        net.add("SkipSimplifiedLayerNormalization", [x, out, skip], [f"l{n}.norm1", "", "", f"l{n}.mid"], MS, epsilon=1e-5)
        gate, up = (net.linear(f"l{n}.norm1", f"l{n}.{part}", width, inner) for part in ("gate", "up"))
        unit = net.add("Mul", [gate, net.add("Sigmoid", [gate], [f"l{n}.sigmoid"])], [f"l{n}.unit"])
        down = net.linear(net.add("Mul", [unit, up], [f"l{n}.product"]), f"l{n}.down", inner, width)
        ends = [f"l{n}.norm2", "", "", f"l{n}.end"]
        net.add("SkipSimplifiedLayerNormalization", [f"l{n}.mid", down, net.norm_weight(f"l{n}.norm2.w", width)], ends, MS, epsilon=1e-5)
        x, normed = f"l{n}.end", f"l{n}.norm2"
    net.linear(normed, "logits", width, words)

    whole = ["batch_size", "sequence_length"], ["batch_size", "total_sequence_length"]
    infos = [helper.make_tensor_value_info(n, TensorProto.INT64, s) for n, s in zip(("input_ids", "attention_mask"), whole, strict=True)]
    infos += [helper.make_tensor_value_info(c, TensorProto.FLOAT, ["batch_size", kv, "past_sequence_length", d]) for c in caches_in]
    results = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch_size", "sequence_length", words])]
    results += [helper.make_tensor_value_info(c, TensorProto.FLOAT, ["batch_size", kv, "total_sequence_length", d]) for c in caches_out]
    graph = helper.make_graph(net.nodes, "decoder", infos, results, net.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)], ir_version=10)
