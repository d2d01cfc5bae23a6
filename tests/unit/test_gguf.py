"""The GGUF reader on sound files: metadata with its types, tensors in place, versions, split models."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from gguf_files import BOOL, F32, F64, I8, I32, I64, STRING, U8, U16, U32, U64, Tensor, array, number, text, write
from pliant import ModelFileError, UnsupportedError
from pliant.frontends.gguf import BY_NAME, FORMATS, open_gguf
from pliant.frontends.gguf.reader import from_bytes
from pliant.quantization.formats import RETIRED

PAIRS = [
    ("general.architecture", text("llama")),
    ("a.u8", number(U8, 200)),
    ("a.i8", number(I8, -5)),
    ("a.u16", number(U16, 60000)),
    ("a.u32", number(U32, 4_000_000_000)),
    ("a.i64", number(I64, -(1 << 60))),
    ("a.u64", number(U64, 1 << 63)),
    ("a.f32", number(F32, 0.5)),
    ("a.f64", number(F64, 0.1)),
    ("a.yes", number(BOOL, True)),
    ("a.words", array(STRING, ["", "é", b"\xff\xfe"])),
    ("a.ids", array(I32, [3, -1, 7])),
    ("a.none", array(F32, [])),
    ("a.flags", array(BOOL, [True, False])),
]


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_has_its_types(version: int) -> None:
    file = from_bytes(write(PAIRS, version=version), "m")
    assert (file.version, file.architecture) == (version, "llama")
    assert [file.integer(f"a.{k}", low=-(1 << 63), high=1 << 64) for k in ("u8", "i8", "u16", "u32", "i64", "u64")] == [
        200,
        -5,
        60000,
        4_000_000_000,
        -(1 << 60),
        1 << 63,
    ]
    assert (file.number("a.f32"), file.number("a.f64"), file.number("a.i8")) == (0.5, 0.1, -5.0)
    assert file.flag("a.yes") is True
    assert [w.encode(errors="surrogateescape") for w in file.strings("a.words")] == [b"", "é".encode(), b"\xff\xfe"]
    assert file.numbers("a.ids").tolist() == [3, -1, 7] and file.numbers("a.none").shape == (0,)
    assert file.numbers("a.flags").tolist() == [True, False]


def test_defaults_and_refusals_name_the_key() -> None:
    file = from_bytes(write(PAIRS), "m.gguf")
    assert (file.integer("b", 7), file.text("b", "x"), file.flag("b", False), file.number("b", 2.0)) == (
        7,
        "x",
        False,
        2.0,
    )
    for ask in (
        lambda: file.integer("missing"),
        lambda: file.integer("a.f32"),
        lambda: file.integer("a.yes"),
        lambda: file.integer("a.u64"),
        lambda: file.text("a.u8"),
        lambda: file.flag("a.u8"),
        lambda: file.strings("a.ids"),
        lambda: file.numbers("a.words"),
        lambda: file.number("a.words"),
        lambda: file.tensor("w"),
    ):
        with pytest.raises(ModelFileError, match=r"`(missing|a\.\w+|w)`"):
            ask()


def test_tensors_lie_in_the_file_as_written() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = np.arange(4, dtype=np.int64)
    file = from_bytes(write([], [Tensor("a", (2, 3), 0, a.tobytes()), Tensor("b", (2, 1, 2), 27, b.tobytes())]), "m")
    assert file.tensors["a"].array().tolist() == a.tolist() and file.tensors["a"].dequantized().tolist() == a.tolist()
    assert file.tensors["b"].array().tolist() == b.reshape(2, 1, 2).tolist()
    assert not file.tensors["a"].data.flags.writeable
    assert file.tensor("a", (2, 3)).size == 24
    with pytest.raises(ModelFileError, match=r"\(2, 3\), where \(3, 2\)"):
        file.tensor("a", (3, 2))


def test_alignment_of_the_file_is_used() -> None:
    pairs = [("general.alignment", number(U32, 128))]
    tensors = [Tensor("a", (1,), 0, struct.pack("<f", 1.5)), Tensor("b", (1,), 0, struct.pack("<f", 2.5))]
    file = from_bytes(write(pairs, tensors, alignment=128), "m")
    assert [file.tensors[n].array().item() for n in "ab"] == [1.5, 2.5]


def test_types_that_are_not_read_are_refused_by_name() -> None:
    format = BY_NAME["IQ2_XXS"]
    file = from_bytes(write([], [Tensor("w.weight", (1, 256), format.number, bytes(format.size))]), "m")
    with pytest.raises(UnsupportedError, match=r"`w\.weight` is of type IQ2_XXS"):
        file.tensors["w.weight"].dequantized()


def test_mapped_from_disk_and_refused_where_it_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(write(PAIRS, [Tensor("a", (8,), 24, bytes(range(8)))]))
    assert open_gguf(path).tensors["a"].array().tolist() == list(range(8))
    for wrong in (tmp_path, tmp_path / "none.gguf", Path("/dev/null")):
        with pytest.raises(ModelFileError):
            open_gguf(wrong)


def part(i: int, n: int, **more: object) -> bytes:
    pairs = [("general.architecture", text("llama"))] if i == 0 else []
    pairs += [
        ("split.no", number(U16, i)),
        ("split.count", number(U16, n)),
        ("split.tensors.count", number(I32, int(str(more.get("total", n))))),
    ]
    return write(pairs, [Tensor(str(more.get("name", f"t{i}")), (1,), 0, struct.pack("<f", i))])


def split(folder: Path, parts: list[bytes]) -> list[Path]:
    paths = [folder / f"m-{i + 1:05}-of-{len(parts):05}.gguf" for i in range(len(parts))]
    for path, data in zip(paths, parts, strict=True):
        path.write_bytes(data)
    return paths


def test_split_models_are_one(tmp_path: Path) -> None:
    paths = split(tmp_path, [part(i, 3) for i in range(3)])
    for path in paths:
        file = open_gguf(path)
        assert file.architecture == "llama"
        assert {n: t.array().item() for n, t in file.tensors.items()} == {"t0": 0, "t1": 1, "t2": 2}


def test_split_models_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    cases = {
        "missing": [part(i, 3) for i in range(3)],
        "does not say": [part(0, 2), part(0, 2)],
        "two parts": [part(0, 2, name="t"), part(1, 2, name="t")],
        "announced": [part(0, 2, total=5), part(1, 2)],
    }
    for i, (words, parts) in enumerate(cases.items()):
        folder = tmp_path / str(i)
        folder.mkdir()
        paths = split(folder, parts)
        if words == "missing":
            paths[1].unlink()
        with pytest.raises(ModelFileError, match=words):
            open_gguf(paths[0])
    alone = tmp_path / "renamed.gguf"
    alone.write_bytes(part(1, 3))
    with pytest.raises(ModelFileError, match="one part of a split model"):
        open_gguf(alone)
    many = tmp_path / "m-00001-of-99999.gguf"
    many.write_bytes(part(0, 3))
    with pytest.raises(ModelFileError, match="1 to 1024 parts"):
        open_gguf(many)


def test_sizes_are_those_of_the_gguf_package() -> None:
    constants = pytest.importorskip("gguf.constants")
    sizes = {t.value: (t.name, *size) for t, size in constants.GGML_QUANT_SIZES.items()}
    names = {n: (f.name, f.length, f.size) for n, f in FORMATS.items()}
    assert names == {n: size for n, size in sizes.items() if n not in RETIRED}
