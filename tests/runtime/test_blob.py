"""Blobs: bytes and back, broken bytes, executable memory."""

from __future__ import annotations

import ctypes
import random

import pytest
from runtime_programs import compiled

from pliant.runtime.blob import Blob, load
from pliant.support.errors import InternalError, ModelFileError

BLOB = Blob(bytes(range(100)), {"run": 0, "größe": 99})


def test_round_trip() -> None:
    assert Blob.from_bytes(BLOB.to_bytes()) == BLOB
    assert Blob.from_bytes(Blob(b"", {}).to_bytes()) == Blob(b"", {})


def test_forms_of_kinds_that_come_later() -> None:
    shaders = Blob(b"fn", {"run": 0}, "wgsl")
    assert Blob.from_bytes(shaders.to_bytes()) == shaders
    with pytest.raises(ModelFileError, match="it is not machine code that can be mapped"):
        load(shaders)
    with pytest.raises(InternalError, match="has four letters"):
        Blob(b"", {}, "metal").to_bytes()
    unknown = bytearray(BLOB.to_bytes())
    unknown[8:12] = (77).to_bytes(4, "little")
    with pytest.raises(ModelFileError, match="its form 77 is unknown"):
        Blob.from_bytes(bytes(unknown))


def test_every_cut_is_refused() -> None:
    data = BLOB.to_bytes()
    for end in range(len(data)):
        with pytest.raises(ModelFileError):
            Blob.from_bytes(data[:end])
    with pytest.raises(ModelFileError, match="101 are there"):
        Blob.from_bytes(data + b"x")


def test_mutations_are_refused_or_harmless() -> None:
    random.seed(2)
    data = BLOB.to_bytes()
    refused = 0
    for _ in range(3000):
        broken = bytearray(data)
        for _ in range(random.randint(1, 4)):
            broken[random.randrange(len(data) - 100)] = random.randrange(256)
        try:
            blob = Blob.from_bytes(bytes(broken))
        except ModelFileError:
            refused += 1
        else:
            assert all(0 <= offset < len(blob.code) for offset in blob.exports.values())
    assert refused > 1000


@pytest.mark.parametrize("offset", [100, 2**63])
def test_an_export_outside_the_code_is_refused(offset: int) -> None:
    with pytest.raises(ModelFileError, match="outside the code"):
        Blob.from_bytes(Blob(BLOB.code, {"run": offset}).to_bytes())


def test_loaded_code_runs_and_is_not_writable() -> None:
    blob = compiled("define i64 @twice(i64 %x) {\n  %y = add i64 %x, %x\n  ret i64 %y\n}\n", "twice")
    loaded = load(blob)
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("twice"))(21) == 42
    with open("/proc/self/maps") as maps:
        line = next(at for at in maps if int(at.split("-")[0], 16) <= loaded.base < int(at.split("-")[1].split()[0], 16))
    assert line.split()[1].startswith("r-x")


def test_a_missing_export_says_what_is_there() -> None:
    with pytest.raises(InternalError, match="exports no `walk`") as caught:
        load(Blob(b"\xc3", {"run": 0})).address("walk")
    assert "run" in str(caught.value)
