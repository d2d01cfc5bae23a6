"""Makes the same language model in other tensor types, for benchmarks: a GGUF file for each, in the folder of fetched files.

    python benchmarks/requantize.py [--model smollm2-135m] [--types Q8_0,Q4_0,Q4_K,F16] [--folder ~/models]

Every matrix is dequantized and quantized again; metadata and vectors stay as they are. As in files that llama.cpp makes, the embedding of
a model in 4 bits has Q8_0, and a matrix whose rows are no whole blocks of Q4_K has Q5_0. Needs the package `gguf`.
"""

from __future__ import annotations

import argparse
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import contest  # noqa: F401  (this checkout on the path)
from assets import cache_folder
from pliant.frontends.gguf import BY_NAME, Format, open_gguf
from pliant.frontends.gguf.reader import GgufTensor
from pliant.quantization.formats import Packed

TYPES = "Q8_0,Q4_0,Q4_K,F16"
ALIGNMENT = 32
_FALLBACK = "Q5_0"  # where rows are no whole blocks of 256
_REFINED = 4  # times that the scale and the minimum of a group are fitted to its codes


def quantized(values: NDArray[np.float32], format: Format) -> NDArray[np.uint8]:
    """Rows of values as rows of bytes."""
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    if format.name == "Q4_K":
        return q4_k(values.reshape(-1, 8, 32), format).reshape(len(values), -1)
    found: NDArray[Any] = quantize(values, GGMLQuantizationType[format.name])
    return found.view(np.uint8).reshape(len(values), -1)


def q4_k(groups: NDArray[np.float32], format: Format) -> NDArray[np.uint8]:
    """Blocks of 8 groups of 32 values, each group with 4 bits a value and 6 bits for its scale and its minimum: u8[blocks, bytes]."""
    assert format.codes and format.scale and format.scale.groups and format.minimum and format.minimum.groups
    scale, minimum = _fitted(groups)  # [blocks, 8]; value = scale * code - minimum
    wide, deep = (np.maximum(a.max(1) / 63, 1e-8).astype(np.float16) for a in (scale, minimum))
    scales, minimums = (
        np.clip(np.rint(a / w.astype(np.float32)[:, None]), 0, 63).astype(np.uint8) for a, w in ((scale, wide), (minimum, deep))
    )
    step = np.maximum(wide.astype(np.float32)[:, None] * scales, 1e-12)
    low = deep.astype(np.float32)[:, None] * minimums
    codes = np.clip(np.rint((groups + low[..., None]) / step[..., None]), 0, 15).astype(np.uint8)
    blocks = np.zeros((len(groups), format.size), np.uint8)
    blocks[:, format.scale.offset : format.scale.offset + 2] = wide.view(np.uint8).reshape(-1, 2)
    blocks[:, format.minimum.offset : format.minimum.offset + 2] = deep.view(np.uint8).reshape(-1, 2)
    for packed, numbers in ((format.scale.groups, scales), (format.minimum.groups, minimums), (format.codes, codes.reshape(-1, 256))):
        _pack(packed, numbers, blocks)
    return blocks


def _fitted(groups: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The scale and the minimum (both at least 0) of each group: first from its ends, then by least squares over its codes."""
    minimum = -np.minimum(groups.min(-1), 0)
    scale = (groups.max(-1) + minimum) / 15
    for _ in range(_REFINED):
        codes = np.clip(np.rint((groups + minimum[..., None]) / np.maximum(scale, 1e-12)[..., None]), 0, 15)
        middle, mean = codes.mean(-1), groups.mean(-1)
        spread = ((codes - middle[..., None]) ** 2).sum(-1)
        slope = ((codes - middle[..., None]) * groups).sum(-1) / np.maximum(spread, 1e-12)
        scale = np.where(spread > 0, np.maximum(slope, 0), scale)
        minimum = np.maximum(scale * middle - mean, 0)
    return scale.astype(np.float32), minimum.astype(np.float32)


def _pack(packed: Packed, numbers: NDArray[np.uint8], blocks: NDArray[np.uint8]) -> None:
    """Puts small integers [blocks, packed.count] where their format has them."""
    for i in range(packed.count):
        for place in packed.places(i):
            bits = (numbers[:, i] >> place.into) & ((1 << place.width) - 1)
            blocks[:, place.byte] |= bits.astype(np.uint8) << np.uint8(place.shift)


def wanted(tensor: GgufTensor, kind: str) -> Format:
    """The type that a tensor gets in a file of this kind."""
    if len(tensor.shape) < 2:
        return tensor.format
    if tensor.name in ("token_embd.weight", "output.weight") and kind.startswith("Q4"):
        return BY_NAME["Q8_0"]
    found = BY_NAME[kind]
    return found if tensor.shape[-1] % found.length == 0 else BY_NAME[_FALLBACK]


def requantized(path: Path, kind: str) -> Iterable[bytes]:
    """The bytes of the new file, piece by piece."""
    file = open_gguf(path)
    formats = {name: wanted(t, kind) for name, t in file.tensors.items()}
    pairs = _pairs(path)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(file.tensors), len(pairs)) + b"".join(pairs)
    offset = 0
    for name, tensor in file.tensors.items():
        format, shape = formats[name], tuple(reversed(tensor.shape))
        head += struct.pack("<Q", len(name.encode())) + name.encode() + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        head += struct.pack("<IQ", format.number, offset)
        offset += _padded(int(np.prod(shape)) // format.length * format.size)
    yield head + bytes(_padded(len(head)) - len(head))
    for name, tensor in file.tensors.items():
        data = tensor.data if formats[name] is tensor.format else quantized(tensor.dequantized(), formats[name])
        yield data.tobytes() + bytes(_padded(data.nbytes) - data.nbytes)


def _pairs(path: Path) -> list[bytes]:
    """The pairs of the metadata as they stand in the file, without the alignment, which is the usual one here."""
    from gguf import GGUFReader

    fields = GGUFReader(path).fields.values()
    own = [f for f in fields if not f.name.startswith("GGUF.") and f.name != "general.alignment"]
    return [b"".join(part.tobytes() for part in field.parts) for field in own]


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def make(path: Path, kind: str, folder: Path) -> Path:
    """The file of a kind; made unless it is there and newer than its source."""
    target = folder / f"{path.stem.rpartition('.')[0] or path.stem}.{kind}.gguf"
    if target.exists() and target.stat().st_mtime > path.stat().st_mtime:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    with open(part, "wb") as out:
        for piece in requantized(path, kind):
            out.write(piece)
    os.replace(part, target)
    return target


def main() -> None:
    """Makes the files, and prints where they are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--folder", type=Path, default=cache_folder() / "requantized")
    options = parser.parse_args()
    from pliant.llm.locate import locate

    for kind in options.types.split(","):
        print(make(locate(options.model), kind, options.folder))


if __name__ == "__main__":
    main()
