"""Operators on tensors of texts, computed on the host: a program has numbers only, so that they run before, between and after programs.

    HOST["", "StringConcat"](call)          # the results, as numpy arrays; texts are arrays of objects

Texts are Python's `str`. What a pattern may say is what RE2 knows, as the standard has it: no look around, no reference to a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...support.errors import Error, ModelFileError, UnsupportedError
from .dtypes import dtype_of
from .ngrams import Pool, pool_of
from .regex import PatternError, UnsupportedPatternError, compile_pattern

Array = np.ndarray[Any, Any]
STRING = 8  # the number of texts among the element types of a file
_FIELDS = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints", 8: "strings"}  # by AttributeProto.AttributeType


class Call:
    """One node with its operands, None where one is not given."""

    def __init__(self, node: Any, domain: str, version: int, arrays: list[Any]) -> None:
        self.node, self.domain, self.version, self.arrays = node, domain, version, arrays
        self.op: str = node.op_type
        self.items: list[Any] = arrays
        self.attributes: dict[str, Any] = {a.name: a for a in node.attribute}

    def __str__(self) -> str:
        return f'node "{self.node.name or next(iter(self.node.output), "")}" ({self.op}, opset {self.version})'

    def wrong(self, what: str, **more: Any) -> ModelFileError:
        """An error of the model."""
        return ModelFileError(f"onnx: {self}: {what}", **more)

    def unsupported(self, what: str) -> UnsupportedError:
        """Something that the standard has and we do not."""
        return UnsupportedError(f"onnx: {self}: {what}")

    def attribute(self, name: str, kind: int, default: Any = None) -> Any:
        """An attribute of a kind that its number says; texts are decoded."""
        found = self.attributes.get(name)
        if found is None:
            return default
        if found.type != kind:
            raise self.wrong(f'attribute "{name}" is not of the type that is expected')
        value = getattr(found, _FIELDS[kind])
        if kind == 3:
            return decoded(value)
        if kind == 8:
            return [decoded(s) for s in value]
        return list(value) if kind in (6, 7) else value

    def texts(self, k: int) -> Array:
        """Operand `k`, which must be of texts."""
        found = self.arrays[k] if k < len(self.arrays) else None
        if found is None or found.dtype != object:
            raise self.wrong(f"input {k} is not a tensor of texts")
        return np.asarray(found)

    def ints(self, k: int) -> list[int] | None:
        """Operand `k` as a list of integers, None where it is not given."""
        found = self.arrays[k] if k < len(self.arrays) else None
        if found is None:
            return None
        if found.dtype.kind not in "iu":
            raise self.wrong(f"input {k} is not a list of integers")
        return [int(n) for n in found.reshape(-1)]


def decoded(data: Any) -> str:
    """Bytes of a file as a text."""
    try:
        return data if isinstance(data, str) else bytes(data).decode()
    except UnicodeDecodeError:
        raise ModelFileError("onnx: a text of the model is not UTF-8") from None


def objects(elements: Iterable[Any], shape: tuple[int, ...]) -> Array:
    """An array of objects of a shape, element by element."""
    items = list(elements)
    flat = np.empty(len(items), object)
    flat[:] = items
    return flat.reshape(shape)


def as_texts(value: Any, what: str) -> Array:
    """What a user passes as texts: an array of them, or of bytes in UTF-8."""
    array = np.asarray(value)
    if array.dtype.kind not in "OUS":
        raise Error(f"{what} is a tensor of texts, not of {array.dtype}")
    items = [decoded(e) if isinstance(e, bytes) else e for e in array.reshape(-1).tolist()]
    for e in items:
        if not isinstance(e, str):
            raise Error(f"{what} has an element of type `{type(e).__name__}`, a text is expected")
    return objects(items, array.shape)


def read_texts(proto: Any, what: str) -> Array:
    """The texts that a TensorProto holds."""
    shape = tuple(int(n) for n in proto.dims)
    if any(n < 0 for n in shape) or int(np.prod(shape, dtype=np.float64)) != len(proto.string_data):
        raise ModelFileError(f"onnx: {what} has {len(proto.string_data)} texts, and the shape {shape}")
    return objects(map(decoded, proto.string_data), shape)


# Operators of texts.


def _concat_texts(call: Call) -> list[Array]:
    x, y = call.texts(0), call.texts(1)
    try:
        wide = np.broadcast_arrays(x, y)
    except ValueError:
        raise call.wrong(f"{x.shape} and {y.shape} cannot be broadcast") from None
    return [objects((a + b for a, b in zip(wide[0].flat, wide[1].flat, strict=True)), wide[0].shape)]


def _split_texts(call: Call) -> list[Array]:
    x, delimiter, most = call.texts(0), call.attribute("delimiter", 3) or None, call.attribute("maxsplit", 2)
    parts = [text.split(delimiter, -1 if most is None else most) for text in x.flat]
    width = max(map(len, parts), default=0)
    found = objects((t for p in parts for t in [*p, *[""] * (width - len(p))]), (*x.shape, width))
    return [found, np.asarray([len(p) for p in parts], np.int64).reshape(x.shape)]


def _normalized(call: Call) -> list[Array]:
    x = call.texts(0)
    if not (x.ndim == 1 or (x.ndim == 2 and x.shape[0] == 1)):
        raise call.wrong(f"the operand has the shape {x.shape}, [c] or [1, c] is expected")
    change = call.attribute("case_change_action", 3, "NONE")
    if change not in ("LOWER", "UPPER", "NONE"):
        raise call.wrong(f'attribute "case_change_action" is "{change}"')
    cases: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}
    words = call.attribute("stopwords", 8, [])
    fold: Callable[[str], str] = str if call.attribute("is_case_sensitive", 2, 0) else str.lower
    stops = {fold(w) for w in words}
    kept = [cases[change](t) for t in x.flat if fold(t) not in stops] or [""]
    return [objects(kept, (len(kept),) if x.ndim == 1 else (1, len(kept)))]


def _matches(call: Call) -> list[Array]:
    x, pattern = call.texts(0), call.attribute("pattern", 3)
    if pattern is None:
        raise call.wrong('attribute "pattern" is missing')
    try:
        compiled = compile_pattern(pattern)
    except UnsupportedPatternError as problem:
        raise call.unsupported(f'attribute "pattern" is not supported: {problem}') from None
    except PatternError as problem:
        raise call.wrong(f'attribute "pattern" is not a regular expression: {problem}') from None
    return [np.asarray([compiled.fullmatch(t) for t in x.flat], np.bool_).reshape(x.shape)]


def _counted(call: Call) -> list[Array]:
    pool = pool_of(call.wrong, lambda name, kind, default: call.attribute(name, kind, default), "pool_strings")
    x = call.texts(0)
    if x.ndim not in (1, 2):
        raise call.wrong(f"the operand has {x.ndim} dims, 1 or 2 are expected")
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    found = np.stack([_counts(list(row), pool) for row in rows]) if len(rows) else np.zeros((0, pool.width), np.float32)
    return [pool.weighed(found).reshape((pool.width,) if x.ndim == 1 else (len(rows), pool.width))]


def _counts(row: list[Any], pool: Pool) -> Array:
    """How often each n-gram of the pool is in a row, at the place of its index."""
    index = {gram: at for gram, at in zip(pool.grams, pool.indexes, strict=True) if pool.least <= len(gram) <= pool.most}
    found = np.zeros(pool.width, np.float32)
    for length in range(pool.least, pool.most + 1):
        for step in range(1, pool.skips + 2 if length > 1 else 2):
            for start in range(len(row) - (length - 1) * step):
                at = index.get(tuple(row[start : start + (length - 1) * step + 1 : step]))
                if at is not None:
                    found[at] += 1
    return found


# Operators that only move elements, or compare them.


def _gather(call: Call) -> list[Array]:
    x, indices = call.texts(0), call.arrays[1]
    axis = _axis(call, call.attribute("axis", 2, 0), x.ndim)
    if indices.dtype.kind not in "iu" or (indices.size and not -x.shape[axis] <= indices.min() <= indices.max() < x.shape[axis]):
        raise call.wrong("an index is outside of the tensor")
    return [np.take(x, indices, axis=axis)]


def _axis(call: Call, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise call.wrong(f"axis {axis} of a tensor with {rank} dims")
    return axis % rank


def _reshape(call: Call) -> list[Array]:
    x, wanted = call.texts(0), call.ints(1) or []
    keep = not call.attribute("allowzero", 2, 0)
    final = [x.shape[k] if n == 0 and keep and k < x.ndim else n for k, n in enumerate(wanted)]
    try:
        return [x.reshape(final)]
    except ValueError:
        raise call.wrong(f"{x.size} elements cannot have the shape {wanted}") from None


def _squeeze(call: Call) -> list[Array]:
    x = call.texts(0)
    axes = call.ints(1) if len(call.arrays) > 1 else call.attribute("axes", 7)
    wanted = [k for k, n in enumerate(x.shape) if n == 1] if axes is None else [_axis(call, a, x.ndim) for a in axes]
    if any(x.shape[a] != 1 for a in wanted):
        raise call.wrong(f"the axes {wanted} of the shape {x.shape} are not 1")
    return [np.squeeze(x, tuple(wanted))]


def _unsqueeze(call: Call) -> list[Array]:
    x = call.texts(0)
    axes = (call.ints(1) if len(call.arrays) > 1 else call.attribute("axes", 7)) or []
    rank = x.ndim + len(axes)
    return [np.expand_dims(x, tuple(_axis(call, a, rank) for a in axes))]


def _joined(call: Call) -> list[Array]:
    parts = [call.texts(k) for k in range(len(call.arrays))]
    try:
        return [np.concatenate(parts, axis=_axis(call, call.attribute("axis", 2, 0), parts[0].ndim))]
    except ValueError:
        raise call.wrong(f"the shapes {[p.shape for p in parts]} do not fit together") from None


def _cast(call: Call) -> list[Array]:
    x, to = call.arrays[0], call.attribute("to", 2)
    if to == STRING:
        return [x if x.dtype == object else objects(map(_number_text, x.reshape(-1)), x.shape)]
    dtype = dtype_of(to)
    if dtype is None:
        raise call.wrong('attribute "to" is not supported')
    try:
        numbers = [float(t) if dtype.is_float else int(t) for t in call.texts(0).flat]
    except ValueError as problem:
        raise call.wrong(f"a text is not a number: {problem}") from None
    return [np.asarray(numbers, np.float64 if dtype.is_float else np.int64).astype(dtype.numpy()).reshape(x.shape)]


def _number_text(e: Any) -> str:
    if isinstance(e, np.bool_):
        return str(int(e))
    if not isinstance(e, np.integer) and float(e) in (float("inf"), float("-inf")):
        return "INF" if e > 0 else "-INF"
    return "NaN" if e != e else str(e)


def _labels(call: Call) -> list[Array]:
    from .rules.labels import label_table

    x = call.arrays[0]
    keys, values, default = label_table(call.wrong, call.node, lambda t: read_texts(t, "a tensor of labels"), x.dtype == object)
    table = dict(zip(keys.tolist(), values.tolist(), strict=True))
    found = [table.get(e, default) for e in x.reshape(-1).tolist()]
    return [objects(found, x.shape) if values.dtype == object else np.asarray(found, values.dtype).reshape(x.shape)]


def _constant(call: Call) -> list[Array]:
    given = call.node.attribute[0]
    if given.name == "value":
        return [read_texts(given.t, f"{call}")]
    found = call.attribute("value_strings", 8) if given.name == "value_strings" else [call.attribute("value_string", 3)]
    return [objects(found, (len(found),) if given.name == "value_strings" else ())]


def run_on_host(call: Call) -> list[Array]:
    """The results of a node, whose form has been checked."""
    try:
        return HOST[call.domain, call.op](call)
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as problem:
        raise call.wrong(f"it cannot be computed: {type(problem).__name__}: {str(problem)[:200]}") from problem


HOST: dict[tuple[str, str], Callable[[Call], list[Array]]] = {
    ("", "StringConcat"): _concat_texts,
    ("", "StringSplit"): _split_texts,
    ("", "StringNormalizer"): _normalized,
    ("", "RegexFullMatch"): _matches,
    ("", "TfIdfVectorizer"): _counted,
    ("", "Equal"): lambda call: [np.asarray(call.texts(0) == call.texts(1), np.bool_)],
    ("", "Identity"): lambda call: [call.texts(0)],
    ("", "Shape"): lambda call: [np.asarray(call.texts(0).shape, np.int64)[call.attribute("start", 2, 0) : call.attribute("end", 2)]],
    ("", "Size"): lambda call: [np.asarray(call.texts(0).size, np.int64)],
    ("", "Gather"): _gather,
    ("", "Reshape"): _reshape,
    ("", "Flatten"): lambda call: [call.texts(0).reshape(int(np.prod(call.texts(0).shape[: call.attribute("axis", 2, 1)])), -1)],
    ("", "Squeeze"): _squeeze,
    ("", "Unsqueeze"): _unsqueeze,
    ("", "Transpose"): lambda call: [np.transpose(call.texts(0), call.attribute("perm", 7))],
    ("", "Concat"): _joined,
    ("", "Where"): lambda call: [np.where(call.arrays[0], call.texts(1), call.texts(2))],
    ("", "Cast"): _cast,
    ("", "Constant"): _constant,
    ("ai.onnx.ml", "LabelEncoder"): _labels,
}
MOVERS = {"Identity", "Gather", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Where"}


def text_results(node: Any, texts: list[bool]) -> list[bool]:
    """Which results of a node are texts, by which of its operands are."""
    op = node.op_type
    if op in ("StringConcat", "StringNormalizer", "StringSplit"):
        return [True, False][: len(node.output)]
    if op in MOVERS:
        return [any(texts)]
    attributes = {a.name: a for a in node.attribute}
    if op == "Cast":
        return [attributes["to"].i == STRING if "to" in attributes else False]
    if op == "Constant":
        value = attributes.get("value")
        return [bool(attributes.keys() & {"value_string", "value_strings"}) or (value is not None and value.t.data_type == STRING)]
    if op == "LabelEncoder":
        tensor = attributes.get("values_tensor")
        old = "classes_strings" in attributes and not any(texts)
        return [old or "values_strings" in attributes or (tensor is not None and tensor.t.data_type == STRING)]
    return [False] * len(node.output)
