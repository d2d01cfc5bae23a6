"""Broken and hostile GGUF files: each is a ModelFileError that says what is wrong, soon, and with little memory.

The broken files are made by hand (at least 120), field by field; the mutations are random. No file may give any other exception.
"""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator

import pytest

from counts import count
from gguf_files import ARRAY, BOOL, F32, I8, I32, I64, STRING, U8, U16, U32, U64, Tensor, array, number, string, text, write
from pliant import ModelFileError
from pliant.frontends.gguf.parse import parse
from pliant.frontends.gguf.reader import from_bytes

ONE = [("general.architecture", text("llama"))]
F = Tensor("w", (2, 32), 0, bytes(256))
BIG = [1 << 16, 1 << 31, 1 << 32, (1 << 62) + 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 8]
HEAD = 24  # magic, version, counts


def sound() -> bytes:
    """A file with everything in it."""
    pairs = [
        *ONE,
        ("general.alignment", number(U32, 32)),
        ("a.flag", number(BOOL, True)),
        ("a.f", number(F32, 1.0)),
        ("a.n", number(U64, 7)),
        ("tokenizer.ggml.tokens", array(STRING, ["<s>", "a", "bc", "é"])),
        ("tokenizer.ggml.scores", array(F32, [0.0, -1.0, -2.0, -3.0])),
        ("a.flags", array(BOOL, [True, False])),
    ]
    return write(pairs, [F, Tensor("q", (2, 32), 8, bytes(68)), Tensor("k", (256,), 12, bytes(144)), Tensor("i", (3,), 26, bytes(12))])


def patched(data: bytes, at: int, letter: str, value: int) -> bytes:
    raw = struct.pack(f"<{letter}", value)
    return data[:at] + raw + data[at + len(raw) :]


def headers() -> Iterator[tuple[str, bytes]]:
    yield "nothing", b""
    for size in (1, 3, 4, 7, 8, 12, 16, 20, 23):
        yield f"head cut at {size}", write()[:size]
    for magic in (b"GGML", b"gguf", b"FUGG", b"GGUE", b"\0\0\0\0", b"PK\3\4"):
        yield f"magic {magic!r}", write(magic=magic)
    for version in (0, 1, 4, 99, 0x02000000, 0x03000000, 0xFFFFFFFF):
        yield f"version {version}", write(version=version)
    for n in BIG:
        yield f"{n} tensors", write(ONE, [F], counts=(n, 1))
        yield f"{n} pairs", write(ONE, [F], counts=(1, n))
    yield "more tensors than there are", write(ONE, [F], counts=(2, 1))
    yield "more pairs than there are", write(ONE, [F], counts=(1, 2))
    yield "65536 pairs of nothing", write(counts=(0, 65_536))
    yield "65536 tensors of nothing", write(counts=(65_536, 0))


def metadata() -> Iterator[tuple[str, bytes]]:
    for n in BIG[1:]:
        yield f"a key of {n} bytes", patched(write(ONE), HEAD, "Q", n)
        yield f"a string of {n} bytes", patched(write(ONE), HEAD + 8 + 20 + 4, "Q", n)
        yield f"an array of {n} strings", write([("a", struct.pack("<IIQ", ARRAY, STRING, n))])
        yield f"an array of {n} numbers", write([("a", struct.pack("<IIQ", ARRAY, U64, n))])
        yield f"an array with a string of {n} bytes", write([("a", struct.pack("<IIQQ", ARRAY, STRING, 1, n))])
    yield "a key longer than allowed", write([("k" * 70_000, number(U8, 1))])
    yield "a string longer than allowed", write([("k", text(b"x" * ((16 << 20) + 1)))])
    yield "an empty key", write([("", number(U8, 1))])
    yield "a key twice", write([("a", number(U8, 1)), ("a", number(U8, 2))])
    yield "a key that is no UTF-8", write(counts=(0, 1)) + string(b"\xff\xfe") + number(U8, 1)
    for kind in (13, 14, 255, 0xFFFFFFFF):
        yield f"a value of type {kind}", write([("a", struct.pack("<IQ", kind, 0))])
        yield f"an array of type {kind}", write([("a", struct.pack("<IIQ", ARRAY, kind, 0))])
    yield "an array of arrays", write([("a", struct.pack("<IIQ", ARRAY, ARRAY, 1) + array(U8, [1])[4:])])
    yield "a bool of 2", write([("a", struct.pack("<IB", BOOL, 2))])
    yield "bools of 7", write([("a", struct.pack("<IIQ3B", ARRAY, BOOL, 3, 0, 1, 7))])
    for cut in (1, 4, 9, 12):
        yield f"an array cut by {cut}", write([("a", array(STRING, ["one", "two"]))])[:-cut]
    for kind, size in ((U8, 1), (U16, 2), (U32, 4), (U64, 8), (F32, 4), (I8, 1), (I64, 8)):
        yield f"a number of type {kind} without its last byte", write([("a", struct.pack("<I", kind) + bytes(size - 1))])
    for value in (0, 1, 7, 12, 33, 48, 65_537, 131_072, 1 << 31, 0xFFFFFFFF):
        yield f"alignment {value}", write([("general.alignment", number(U32, value))], [F])
    yield "alignment as text", write([("general.alignment", text("32"))], [F])
    yield "alignment as bool", write([("general.alignment", number(BOOL, True))], [F])
    yield "alignment below zero", write([("general.alignment", number(I32, -32))], [F])


def tables() -> Iterator[tuple[str, bytes]]:
    rank = HEAD + len(string("w"))
    for n in (0, 5, 6, 255, 1 << 31, 0xFFFFFFFF):
        yield f"{n} dims", patched(write([], [F]), rank, "I", n)
    for n in (0, *BIG[1:]):
        yield f"first dim {n}", patched(write([], [F]), rank + 4, "Q", n)
        yield f"last dim {n}", patched(write([], [F]), rank + 12, "Q", n)
    yield "dims whose product wraps to zero", write([], [Tensor("w", (1 << 31 - 1, 1 << 30, 1 << 30, 1 << 30), 0, b"")])
    yield "dims whose product wraps to little", write([], [Tensor("w", ((1 << 31) - 1,) * 4, 0, bytes(64))])
    for kind in (4, 5, 9, 15, 31, 36, 42, 99, 0x80000000, 0xFFFFFFFF):
        yield f"type {kind}", write([], [Tensor("w", (2, 32), kind, bytes(256))])
    for kind, columns in ((2, 31), (3, 33), (8, 16), (12, 255), (14, 128), (23, 32)):
        yield f"rows of {columns} of type {kind}", write([], [Tensor("w", (2, columns), kind, bytes(4096))])
    for offset in (1, 4, 31, 33, 32, 256, 1 << 31, 1 << 40, 1 << 62, (1 << 63) - 32, 1 << 63, (1 << 64) - 32):
        yield f"offset {offset}", write([], [Tensor("w", (2, 32), 0, bytes(256), offset)])
    yield "a tensor without a name", write([], [Tensor("", (1,), 0, bytes(4))])
    yield "a name that is too long", write([], [Tensor("n" * 257, (1,), 0, bytes(4))])
    yield "a name that is no UTF-8", write(counts=(1, 0)) + string(b"\xc3") + struct.pack("<IQIQ", 1, 1, 0, 0) + bytes(64)
    yield "a name twice", write([], [F, F])
    yield "tensors over each other", write([], [F, Tensor("v", (2, 32), 0, bytes(256), 128)])
    yield "tensors at one place", write([], [F, Tensor("v", (2, 32), 0, bytes(256), 0)])
    for cut in (1, 32, 255, 256, 257):
        yield f"data cut by {cut}", write([], [F])[:-cut]
    whole = write(ONE, [F])
    for cut in range(HEAD, len(whole) - 256, 9):
        yield f"cut to {cut} bytes", whole[:cut]
    yield "part of a split model under another name", write([("split.count", number(U16, 3)), ("split.no", number(U16, 1))], [F])


BROKEN = [*headers(), *metadata(), *tables()]


def test_there_are_enough_broken_files() -> None:
    assert len(BROKEN) >= 120 and len({name for name, _ in BROKEN}) == len(BROKEN)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("name", [name for name, _ in BROKEN])
def test_broken_file(name: str) -> None:
    data = dict(BROKEN)[name]
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError) as caught:
            from_bytes(data, "broken.gguf")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith("gguf: ") and "broken.gguf" in str(caught.value)
    assert peak < len(data) * 8 + (1 << 20)


def test_messages_name_the_thing_and_the_byte() -> None:
    cases = dict(BROKEN)
    expected = {
        "type 9": "tensor `w` has the type Q8_1, which files do not hold",
        "type 99": "tensor `w` has the unknown type 99",
        "version 50331648": "big-endian",
        "tensors over each other": "the data of tensors `w` and `v` overlap",
        "data cut by 1": "behind the end of the file",
        "rows of 33 of type 3": "33 elements, which are not whole blocks of Q4_1 (32 elements)",
        "a key twice": "the metadata key `a` appears twice",
        "5 dims": "has 5 dims, where 1 to 4 are allowed",
    }
    cases["version 50331648"] = write(version=0x03000000)
    for name, words in expected.items():
        with pytest.raises(ModelFileError) as caught:
            from_bytes(cases[name], "m.gguf")
        assert words in str(caught.value) and "byte " in str(caught.value), name


def test_names_in_messages_cannot_move_the_terminal() -> None:
    with pytest.raises(ModelFileError) as caught:
        from_bytes(write([], [Tensor("\x1b[2J\r\n" + "x" * 200, (1,), 99, bytes(4))]), "m")
    first = str(caught.value).splitlines()[0]
    assert "\x1b" not in first and "\r" not in first and len(first) < 200


def mutated(data: bytes, random: random.Random) -> bytes:
    """A file with some bytes changed, some fields replaced by numbers that hurt, pieces cut, doubled or swapped."""
    raw = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4, 8))):
        at = random.randrange(len(raw)) if raw else 0
        match random.randrange(6):
            case 0:
                raw[at : at + 1] = bytes([random.randrange(256)])
            case 1:
                raw[at : at + 8] = struct.pack("<Q", random.choice((0, 1, 2, 255, *BIG)))
            case 2:
                raw[at : at + 4] = struct.pack("<I", random.choice((0, 1, 8, 9, 31, 32, 255, 0x7FFFFFFF, 0xFFFFFFFF)))
            case 3:
                del raw[at : at + random.randrange(64)]
            case 4:
                raw[at:at] = raw[at : at + random.randrange(64)]
            case _:
                raw[at : at + 1] = bytes([(raw[at] if at < len(raw) else 0) ^ (1 << random.randrange(8))])
    return bytes(raw)


def test_mutated_files_are_read_or_refused() -> None:
    chance, whole, refused = random.Random(6), sound(), 0
    head = parse(whole, "m").entries[0].start
    for i in range(count(5_000, 1_000_000)):
        data = mutated(whole[:head], chance) + whole[head:] if i % 4 else mutated(whole, chance)
        try:
            file = from_bytes(data, "m")
            for tensor in file.tensors.values():
                if tensor.format.known and tensor.size < 1 << 16:
                    assert tensor.dequantized().shape == tensor.shape
        except ModelFileError:
            refused += 1
    assert refused > 0


def test_a_file_of_many_tiny_strings_is_bounded() -> None:
    """4 MB of empty strings in a process whose memory is limited: it is read, or refused, and does not fall over."""
    code = (
        "import resource, struct; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from pliant.frontends.gguf.reader import from_bytes; from gguf_files import write\n"
        "n = 500_000; f = from_bytes(write([('a', struct.pack('<IIQ', 9, 8, n) + bytes(8 * n))]), 'm'); print(len(f.strings('a')))"
    )
    pytest.importorskip("resource")
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path), "OPENBLAS_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("500000\n", "")
