"""The safetensors reader: against the reference library, and on files that are broken in every field."""

from __future__ import annotations

import json
import os
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from counts import count
from pliant import ModelFileError
from pliant.frontends.safetensors import load_safetensors

TENSORS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b.bias": np.array([1, 2, 3], np.int64),
    "empty": np.zeros((0, 4), np.float16),
    "scalar": np.array(3.5),
    "flag": np.array([True, False, True]),
    "half": np.ones(2, np.float16),
}


def build(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A file of a header and bytes after it; `length` may lie."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def one(**changes: Any) -> bytes:
    return build({"x": entry(**changes)}, bytes(8))


def test_against_the_reference(tmp_path: Path) -> None:
    reference = pytest.importorskip("safetensors.numpy")
    file = tmp_path / "a.safetensors"
    reference.save_file(TENSORS, file, metadata={"format": "np"})
    found = load_safetensors(file)
    assert set(found) == set(TENSORS) and found.metadata == {"format": "np"} and len(found) == len(TENSORS)
    for name, array in TENSORS.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array) and not found[name].flags.writeable


def test_bfloat16_and_small_floats(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    file = tmp_path / "b.safetensors"
    wide = np.array([1.5, -2.0, 0.25, 448.0], np.float32)
    bf16, f8 = wide.astype(ml_dtypes.bfloat16), wide.astype(ml_dtypes.float8_e4m3fn)
    header = {"x": entry("BF16", [4], [0, 8]), "y": entry("F8_E4M3", [4], [8, 12])}
    file.write_bytes(build(header, bf16.tobytes() + f8.tobytes()))
    found = load_safetensors(file)
    assert found["x"].astype(np.float32).tolist() == wide.tolist() == found["y"].astype(np.float32).tolist()


def test_bytes_stay_mapped(tmp_path: Path) -> None:
    file = tmp_path / "c.safetensors"
    header = json.dumps({"x": entry("F32", [2], [0, 8])}).encode()
    header += b" " * (-len(header) % 8)
    file.write_bytes(build(header, np.array([1, 2], np.float32).tobytes()))
    found = load_safetensors(file)
    assert found["x"].tolist() == [1, 2] and np.shares_memory(found["x"], found["x"])


def test_unaligned_data_is_copied(tmp_path: Path) -> None:
    file = tmp_path / "d.safetensors"
    header = {"pad": entry("U8", [1], [0, 1]), "x": entry("F64", [2], [1, 17])}
    file.write_bytes(build(header, b"\x07" + np.array([1.5, 2.5]).tobytes()))
    x = load_safetensors(file)["x"]
    assert x.tolist() == [1.5, 2.5] and x.flags.aligned


GOOD = one()


def test_the_file_that_is_broken_below_is_good(tmp_path: Path) -> None:
    (tmp_path / "good.safetensors").write_bytes(GOOD)
    assert load_safetensors(tmp_path / "good.safetensors")["x"].tolist() == [0, 0]


BROKEN: dict[str, bytes] = {
    "empty file": b"",
    "seven bytes": bytes(7),
    "no header": struct.pack("<Q", 0),
    "header longer than the file": build({}, length=100),
    "header of one byte too many": build({}, length=3),
    "header beyond the limit": build({}, length=100_000_001),
    "header of 2^63": build({}, length=1 << 63),
    "header of 2^64 - 1": build({}, length=(1 << 64) - 1),
    "truncated in the header": GOOD[:20],
    "truncated in the data": GOOD[:-1],
    "a byte too many": GOOD + b"\x00",
    "not JSON": build(b"hello world"),
    "not UTF-8": build(b'{"\xff": 1}'),
    "a list": build([]),
    "a number": build(b"17"),
    "a text": build(b'"x"'),
    "null": build(b"null"),
    "deep nesting": build(b"[" * 200_000),
    "deep objects": build(b'{"x":' * 100_000),
    "a name twice": build(b'{"x": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}, "x": 1}'),
    "a number of many digits": build(b'{"x": ' + b"9" * 5000 + b"}"),
    "an entry that is a list": build({"x": []}),
    "an entry that is null": build({"x": None}),
    "no dtype": build({"x": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
    "no shape": build({"x": {"dtype": "F32", "data_offsets": [0, 8]}}, bytes(8)),
    "no offsets": build({"x": {"dtype": "F32", "shape": [2]}}, bytes(8)),
    "an unknown field": build({"x": {**entry(), "more": 1}}, bytes(8)),
    "an unknown dtype": one(dtype="F31"),
    "a dtype that is a number": one(dtype=3),
    "a dtype that is a list": one(dtype=["F32"]),
    "a shape that is a number": one(shape=2),
    "a shape with a text": one(shape=["2"]),
    "a shape with a fraction": one(shape=[2.0]),
    "a shape with true": one(shape=[True, 2]),
    "a negative extent": one(shape=[-2]),
    "two negative extents": one(shape=[-1, -2]),
    "an extent of 2^63": one(shape=[1 << 63]),
    "a product of 2^64": one(shape=[1 << 32, 1 << 32]),
    "a product that wraps to 8": one(shape=[(1 << 62) + 2, 4]),
    "too few bytes": one(shape=[3]),
    "too many bytes": one(shape=[1]),
    "too many dims": one(shape=[1] * 33 + [2]),
    "a zero extent and bytes": one(shape=[0, 1 << 62]),
    "offsets of one number": one(offsets=[8]),
    "offsets of three numbers": one(offsets=[0, 4, 8]),
    "offsets the wrong way round": one(offsets=[8, 0]),
    "a negative offset": one(offsets=[-8, 0]),
    "an end beyond the file": one(offsets=[0, 16], shape=[4]),
    "a begin beyond the file": one(offsets=[16, 24]),
    "an end of 2^63": one(offsets=[0, 1 << 63]),
    "offsets as texts": one(offsets=["0", "8"]),
    "offsets that are null": one(offsets=None),
    "overlapping tensors": build({"x": entry(), "y": entry(offsets=[4, 12])}, bytes(12)),
    "the same bytes twice": build({"x": entry(), "y": entry()}, bytes(8)),
    "a gap between tensors": build({"x": entry(), "y": entry(offsets=[12, 20])}, bytes(20)),
    "a gap at the start": one(offsets=[4, 12]) + bytes(4),
    "metadata that is a list": build({"__metadata__": [1]}),
    "metadata of numbers": build({"__metadata__": {"a": 1}}),
    "metadata nested": build({"__metadata__": {"a": {"b": "c"}}}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(name: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.safetensors"
    file.write_bytes(BROKEN[name])
    with pytest.raises(pliant.ModelFileError, match=r"broken\.safetensors is no usable safetensors file: "):
        load_safetensors(file)


def test_a_tensor_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(build({"layer.\n0": entry("F31")}, bytes(8)))
    with pytest.raises(pliant.ModelFileError, match=r"tensor `layer\.\\n0` has the unknown type F31"):
        load_safetensors(file)


def test_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(pliant.ModelFileError, match="cannot read"):
            load_safetensors(path)


def test_mutated_files(tmp_path: Path) -> None:
    """Whatever is changed, the answer is an error of ours or arrays inside of the file."""
    rng = random.Random(7)
    file = tmp_path / "m.safetensors"
    good = build({"x": entry(), "y": entry("I64", [1, 2], [8, 24]), "__metadata__": {"a": "b"}}, bytes(24))
    refused, tries = 0, count(2000, 500_000)
    for _ in range(tries):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 2)] = bytes(rng.choice(b'0123456789,"[]{}:-eF \xff') for _ in range(rng.randint(0, 2)))
        file.write_bytes(data)
        try:
            for array in load_safetensors(file).values():
                array.sum()
        except pliant.ModelFileError:
            refused += 1
    assert refused > 0.8 * tries


def test_raw_bytes_are_views_unless_they_are_not_aligned(tmp_path: Path) -> None:
    file = tmp_path / "r.safetensors"
    data = np.arange(3, dtype=np.float32).tobytes()
    header = json.dumps({"x": entry(shape=[3], offsets=[0, 12])}).encode()
    for pad in range(8):
        file.write_bytes(build(header + b" " * pad, data))
        raw = load_safetensors(file).raw("x")
        assert raw.tobytes() == data and raw.ctypes.data % 4 == 0 and raw.flags.owndata == ((len(header) + pad) % 4 != 0)


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no pipes with names here")
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(ModelFileError, match="it is not a regular file"):
        load_safetensors(tmp_path / "pipe.safetensors")
