"""Operators on string tensors, which run on the host: compiled programs have no strings, so these run before, between and after them.

    HOST["", "StringConcat"](call)          # the results as numpy arrays; strings are object arrays of `str`

Patterns have the syntax of RE2, as the standard demands: no lookaround and no backreferences.
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
STRING = 8  # TensorProto.STRING, an element type
_FIELDS = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints", 8: "strings"}  # AttributeProto.AttributeType -> field


class Call:
    """An ONNX node that runs on the host, with its operands; None for an omitted operand."""

    def __init__(self, node: Any, domain: str, version: int, arrays: list[Any]) -> None:
        self.node, self.domain, self.version, self.arrays = node, domain, version, arrays
        self.op: str = node.op_type
        self.items: list[Any] = arrays
        self.attributes: dict[str, Any] = {a.name: a for a in node.attribute}

    def __str__(self) -> str:
        return f'node "{self.node.name or next(iter(self.node.output), "")}" ({self.op}, opset {self.version})'

    def wrong(self, what: str, **more: Any) -> ModelFileError:
        """Returns the error for an invalid model."""
        return ModelFileError(f"onnx: {self}: {what}", **more)

    def unsupported(self, what: str) -> UnsupportedError:
        """Returns the error for a feature of the standard that is not supported."""
        return UnsupportedError(f"onnx: {self}: {what}")

    def attribute(self, name: str, kind: int, default: Any = None) -> Any:
        """Returns the value of an attribute of type `kind` (an AttributeType), or the default; strings are decoded.

        Raises ModelFileError if it has another type.
        """
        proto = self.attributes.get(name)
        if proto is None:
            return default
        if proto.type != kind:
            raise self.wrong(f'attribute "{name}" is not of the type that is expected')
        value = getattr(proto, _FIELDS[kind])
        if kind == 3:
            return decoded(value)
        if kind == 8:
            return [decoded(s) for s in value]
        return list(value) if kind in (6, 7) else value

    def texts(self, k: int) -> Array:
        """Returns operand `k`; raises ModelFileError if it is not a string tensor."""
        array = self.arrays[k] if k < len(self.arrays) else None
        if array is None or array.dtype != object:
            raise self.wrong(f"input {k} is not a tensor of texts")
        return np.asarray(array)

    def ints(self, k: int) -> list[int] | None:
        """Returns operand `k` as a list of integers, None if it is omitted; raises ModelFileError if it has other elements."""
        array = self.arrays[k] if k < len(self.arrays) else None
        if array is None:
            return None
        if array.dtype.kind not in "iu":
            raise self.wrong(f"input {k} is not a list of integers")
        return [int(n) for n in array.reshape(-1)]


def decoded(data: Any) -> str:
    """Decodes a string of the file; raises if it is not UTF-8."""
    try:
        return data if isinstance(data, str) else bytes(data).decode()
    except UnicodeDecodeError:
        raise ModelFileError("onnx: a text of the model is not UTF-8") from None


def objects(elements: Iterable[Any], shape: tuple[int, ...]) -> Array:
    """Returns an object array with the given elements and shape."""
    items = list(elements)
    flat = np.empty(len(items), object)
    flat[:] = items
    return flat.reshape(shape)


def as_texts(value: Any, what: str) -> Array:
    """Returns a user's array of `str`, or of UTF-8 bytes, as an object array of `str`; raises an Error for other elements."""
    array = np.asarray(value)
    if array.dtype.kind not in "OUS":
        raise Error(f"{what} is a tensor of texts, not of {array.dtype}")
    items = [decoded(e) if isinstance(e, bytes) else e for e in array.reshape(-1).tolist()]
    for e in items:
        if not isinstance(e, str):
            raise Error(f"{what} has an element of type `{type(e).__name__}`, a text is expected")
    return objects(items, array.shape)


def read_texts(proto: Any, what: str) -> Array:
    """Returns the strings of a TensorProto as an object array; raises ModelFileError if their number does not fit the shape."""
    shape = tuple(int(n) for n in proto.dims)
    if any(n < 0 for n in shape) or int(np.prod(shape, dtype=np.float64)) != len(proto.string_data):
        raise ModelFileError(f"onnx: {what} has {len(proto.string_data)} texts, and the shape {shape}")
    return objects(map(decoded, proto.string_data), shape)


# String operators.


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
    padded = objects((t for p in parts for t in [*p, *[""] * (width - len(p))]), (*x.shape, width))
    return [padded, np.asarray([len(p) for p in parts], np.int64).reshape(x.shape)]


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
    words_left = [cases[change](t) for t in x.flat if fold(t) not in stops] or [""]
    return [objects(words_left, (len(words_left),) if x.ndim == 1 else (1, len(words_left)))]


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
    counts = np.stack([_counts(list(row), pool) for row in rows]) if len(rows) else np.zeros((0, pool.width), np.float32)
    return [pool.weighed(counts).reshape((pool.width,) if x.ndim == 1 else (len(rows), pool.width))]


def _counts(row: list[Any], pool: Pool) -> Array:
    """The number of occurrences in a row of each n-gram of the pool, at the n-gram's index."""
    index = {gram: at for gram, at in zip(pool.grams, pool.indexes, strict=True) if pool.least <= len(gram) <= pool.most}
    counts = np.zeros(pool.width, np.float32)
    for length in range(pool.least, pool.most + 1):
        for step in range(1, pool.skips + 2 if length > 1 else 2):
            for start in range(len(row) - (length - 1) * step):
                at = index.get(tuple(row[start : start + (length - 1) * step + 1 : step]))
                if at is not None:
                    counts[at] += 1
    return counts


# Operators that move or convert elements.


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
    labels = [table.get(e, default) for e in x.reshape(-1).tolist()]
    return [objects(labels, x.shape) if values.dtype == object else np.asarray(labels, values.dtype).reshape(x.shape)]


def _constant(call: Call) -> list[Array]:
    attribute_ = call.node.attribute[0]
    if attribute_.name == "value":
        return [read_texts(attribute_.t, f"{call}")]
    strings = call.attribute("value_strings", 8) if attribute_.name == "value_strings" else [call.attribute("value_string", 3)]
    return [objects(strings, (len(strings),) if attribute_.name == "value_strings" else ())]


def run_on_host(call: Call) -> list[Array]:
    """Runs a node that `check_form` has validated; returns its results. Raises ModelFileError if it cannot be computed."""
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
    """Returns for each result of a node whether it is a string tensor; `texts` says which operands are."""
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
