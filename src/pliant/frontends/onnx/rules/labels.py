"""Numeric operators of the domain ai.onnx.ml (labels, features, linear regression), and TfIdfVectorizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....dtype import dtype as to_dtype
from ....dtype import f32, i64
from ....sym.expr import Max, const
from ....sym.simplify import simplify
from ..emit import ops
from ..ngrams import pool_of
from ..node_context import NodeContext
from ..registry import rule

ML = "ai.onnx.ml"
Array = np.ndarray[Any, Any]
_LISTS = {"strings": object, "int64s": np.int64, "floats": np.float32}


def label_table(wrong: Callable[[str], Exception], node: Any, texts: Callable[[Any], Array], of_texts: bool) -> tuple[Array, Array, Any]:
    """Returns the keys, values and default of a LabelEncoder; `texts` reads a string tensor, `of_texts` says that the operand is one.

    Raises `wrong(…)` if keys and values do not fit, or a key is given twice.
    """
    attributes = {a.name: a for a in node.attribute}
    if "classes_strings" in attributes:  # version 1 maps strings to their indices, or indices to strings
        words = _list(attributes["classes_strings"], "strings")
        places = np.arange(len(words), dtype=np.int64)
        default = attributes.get("default_int64" if of_texts else "default_string")
        missing: Any = (-1 if default is None else default.i) if of_texts else ("_Unused" if default is None else default.s.decode())
        return (words, places, missing) if of_texts else (places, words, missing)
    keys, values = (_labels(wrong, attributes, side, texts) for side in ("keys", "values"))
    if keys.ndim != 1 or keys.shape != values.shape:
        raise wrong(f"{keys.shape} keys and {values.shape} values")
    if len(set(keys.tolist())) != len(keys):
        raise wrong("a key is given twice")
    return keys, values, _default(attributes, values)


def _list(attribute: Any, kind: str) -> Array:
    """Returns a list attribute as a numpy array."""
    field = {"strings": "strings", "int64s": "ints", "floats": "floats"}[kind]
    items = [s.decode() if isinstance(s, bytes) else s for s in getattr(attribute, field)]
    array = np.empty(len(items), _LISTS[kind])
    array[:] = items
    return array


def _labels(wrong: Callable[[str], Exception], given: dict[str, Any], side: str, texts: Callable[[Any], Array]) -> Array:
    """Returns the keys or values of a LabelEncoder, from the one attribute that holds them.

    Raises `wrong(…)` if there is not exactly one.
    """
    from ..tensors import read_tensor

    names = [n for n in given if n.startswith(f"{side}_")]
    if len(names) != 1:
        raise wrong(f"it has {len(names)} attributes with {side}, one is expected")
    kind = names[0].removeprefix(f"{side}_")
    if kind == "tensor":
        tensor = given[names[0]].t
        return texts(tensor) if tensor.data_type == 8 else read_tensor(tensor, f'attribute "{names[0]}"')
    if kind not in _LISTS:
        raise wrong(f'there is no attribute "{names[0]}"')
    return _list(given[names[0]], kind)


def _default(given: dict[str, Any], values: Array) -> Any:
    """Returns the default value of a LabelEncoder, in the type of its values."""
    from ..tensors import read_tensor

    tensor = given.get("default_tensor")
    if tensor is not None:
        return tensor.t.string_data[0].decode() if tensor.t.data_type == 8 else read_tensor(tensor.t, "the default").reshape(-1)[0].item()
    name = {"O": "default_string", "i": "default_int64", "u": "default_int64"}.get(values.dtype.kind, "default_float")
    proto = given.get(name)
    if proto is None:
        return {"default_string": "_Unused", "default_int64": -1}.get(name, -0.0)
    return proto.s.decode() if name == "default_string" else proto.i if name == "default_int64" else proto.f


@rule("LabelEncoder", domain=ML)
def label_encoder(site: NodeContext) -> Any:
    """Imports LabelEncoder: maps each element to the value of the equal key, or to the default, by comparing it with all keys.

    Raises UnsupportedError for strings.
    """

    def refuse(_: Any) -> Array:
        raise site.unsupported("texts are not numbers")

    keys, values, default = label_table(site.wrong, site.node, refuse, False)
    if keys.dtype == object or values.dtype == object:
        raise site.unsupported("texts are no tensors of a program")
    site.require(to_dtype(keys.dtype) is site.dtype(0), f"the keys are {keys.dtype}, and the operand {site.dtype(0)}")
    x = ops.reshape(site.x(0), (*site.tensor(0).shape, 1))
    same = ops.equal(x, ops.constant(keys))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        same = ops.logical_or(same, ops.logical_and(ops.is_nan(x), ops.constant(np.isnan(keys))))
    ranks = ops.where(same, ops.constant(np.arange(len(keys))), ops.constant(np.int64(len(keys))))
    place = ops.min(ops.concat([ranks, ops.full((*site.tensor(0).shape, 1), len(keys), i64)], axis=site.rank(0)), axis=-1)
    return ops.take(ops.constant(np.append(values, np.asarray(default, values.dtype))), place, 0)


@rule("Binarizer", domain=ML)
def binarizer(site: NodeContext) -> Any:
    """Imports Binarizer: 1 for elements above a threshold, else 0."""
    of = site.dtype(0)
    threshold = site.real("threshold", 0.0)
    x: Any = site.x(0) if of.is_float else ops.cast(site.x(0), "f64")
    return ops.cast(ops.greater(x, threshold), of)


@rule("Scaler", domain=ML)
def scaler(site: NodeContext) -> Any:
    """Imports Scaler: (x - offset) * scale along the last axis, in f32. Lists of one number serve all features."""
    site.require(site.rank(0) >= 1, "the operand has no dims")
    x = ops.cast(site.x(0), f32)
    for name, step in (("offset", ops.sub), ("scale", ops.mul)):
        numbers = np.asarray(site.floats(name, []), np.float32)
        if len(numbers) > 1:
            site.settle(0, *site.tensor(0).shape[:-1], len(numbers))
        if len(numbers):
            x = step(x, ops.constant(numbers))
    return x


@rule("Imputer", domain=ML)
def imputer(site: NodeContext) -> Any:
    """Imports Imputer: replaces missing elements (equal to a given value, or NaN) by a number for each feature, or by one for all."""
    whole = not site.dtype(0).is_float
    numbers = site.ints("imputed_value_int64s", []) if whole else site.floats("imputed_value_floats", [])
    missing = site.integer("replaced_value_int64", 0) if whole else site.real("replaced_value_float", 0.0)
    site.require(len(numbers) > 0 and site.rank(0) >= 1, "there are no values to impute, or the operand has no dims")
    if len(numbers) > 1:
        site.settle(0, *site.tensor(0).shape[:-1], len(numbers))
    x, of = site.x(0), site.dtype(0)
    lost = ops.is_nan(x) if missing != missing else ops.equal(x, ops.constant(np.asarray(missing, of.numpy())))
    return ops.where(lost, ops.constant(np.asarray(numbers, of.numpy())), x)


@rule("LinearRegressor", domain=ML)
def linear_regressor(site: NodeContext) -> Any:
    """Imports LinearRegressor in f32: x @ coefficients.T + intercepts, a column for each target; then `post_transform`."""
    site.require(site.rank(0) == 2, f"the operand has {site.rank(0)} dims, two are expected")
    targets = site.integer("targets", 1)
    weights = np.asarray(site.floats("coefficients", []), np.float32)
    shifts = np.asarray(site.floats("intercepts", []), np.float32)
    after = site.text("post_transform", "NONE", "NONE", "LOGISTIC", "SOFTMAX")
    site.require(targets > 0 and weights.size > 0 and weights.size % targets == 0, f"{weights.size} coefficients for {targets} targets")
    site.require(shifts.size in (0, targets), f"{shifts.size} intercepts for {targets} targets")
    site.settle(0, site.tensor(0).shape[0], weights.size // targets)
    y = ops.matmul(ops.cast(site.x(0), f32), ops.constant(np.ascontiguousarray(weights.reshape(targets, -1).T)))
    if shifts.size:
        y = ops.add(y, ops.constant(shifts))
    return {"NONE": lambda: y, "LOGISTIC": lambda: ops.sigmoid(y), "SOFTMAX": lambda: ops.softmax(y, axis=1)}[after]()


@rule("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(site: NodeContext) -> Any:
    """Imports ArrayFeatureExtractor: elements along the last axis, by index; a vector gives a row (1, n)."""
    site.require(site.rank(0) >= 1, "the operand has no dims")
    features = ops.take(site.x(0), ops.reshape(site.x(1), (-1,)), site.rank(0) - 1)
    return ops.reshape(features, (1, *features.tensor.shape)) if site.rank(0) == 1 else features


@rule("TfIdfVectorizer")
def tf_idf(site: NodeContext) -> Any:
    """Imports TfIdfVectorizer for rows of integers: compares sliding windows with the pool of n-grams and sums the matches."""
    read = {2: site.integer, 3: site.text, 6: site.floats, 7: site.ints, 8: site.texts}
    pool = pool_of(site.wrong, lambda name, kind, default: read[kind](name, default), "pool_int64s")
    site.require(site.rank(0) in (1, 2), f"the operand has {site.rank(0)} dims, 1 or 2 are expected")
    x: Any = site.x(0) if site.dtype(0) is i64 else ops.cast(site.x(0), i64)
    x = ops.reshape(x, (1, *site.tensor(0).shape)) if site.rank(0) == 1 else x
    rows, columns = x.tensor.shape
    parts, places = [ops.full((rows, 1), 0, f32)], [0] * pool.width  # column 0 is zero, for result elements without an n-gram
    done = 1
    for length in range(pool.least, pool.most + 1):
        mine = [(g, at) for g, at in zip(pool.grams, pool.indexes, strict=True) if len(g) == length]
        if not mine:
            continue
        wanted = np.asarray([g for g, _ in mine], np.int64)
        counts = [_occurrences(x, columns, wanted, step) for step in range(1, pool.skips + 2 if length > 1 else 2)]
        total = counts[0]
        for more in counts[1:]:
            total = ops.add(total, more)
        parts.append(ops.cast(total, f32))
        for _, at in mine:
            places[at] = done
            done += 1
    weighted: Any = ops.take(ops.concat(parts, axis=1), ops.constant(np.asarray(places, np.int64)), 1)
    if pool.mode != "TF":
        weighted = ops.minimum(weighted, 1.0) if pool.mode == "IDF" else weighted
        weighted = ops.mul(weighted, ops.constant(pool.factors()))
    return ops.reshape(weighted, (pool.width,)) if site.rank(0) == 1 else weighted


def _occurrences(x: Any, columns: Any, wanted: Array, step: int) -> Any:
    """The number of occurrences of each n-gram of `wanted` in the rows of `x`, with stride `step` between elements: [rows, n-grams]."""
    length = wanted.shape[1]
    count = simplify(Max(columns - (length - 1) * step, const(0)))
    same: Any = None
    for k in range(length):
        first = (
            min(k * step, columns.value)
            if hasattr(columns, "value")
            else simplify(Max(columns - count - (length - 1 - k) * step, const(0)))
        )
        window = ops.unsqueeze(ops.slice(x, 1, first, simplify(first + count)), 2)  # [rows, count, 1]
        equal = ops.equal(window, ops.constant(np.ascontiguousarray(wanted[:, k])))
        same = equal if same is None else ops.logical_and(same, equal)
    return ops.sum(ops.cast(same, i64), axis=1)
