"""Opens a checkpoint folder of transformers as the model that a GGUF file with the same weights would be.

    model = open_checkpoint("my-llama/")             # config.json, model.safetensors or its parts, tokenizer.json
    model.architecture, model.tensors["blk.0.attn_q.weight"].format.name     # "llama", "BF16"

What reads GGUF models reads a `Checkpoint` as well: its metadata and tensors are found under GGUF's names, and its tensors, which know
their own names, are views of the mapped files. Two things are as in the folder: RoPE pairs of a llama (`adjacent_pairs`), and the
tokenizer, which is read from `tokenizer.json`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ...quantization.dequantize import dequantize
from ...quantization.formats import BY_NAME
from ...support.errors import ModelFileError, UnsupportedError
from ..gguf.parse import shown
from ..gguf.reader import GgufFile, GgufTensor, stamp_of
from .config import Config, read_text
from .families import Described, describe
from .lazy_tensor import LazyTensor
from .sizes import Piece
from .weights import FolderWeights, open_weights

CONFIG, TEMPLATE = "config.json", "chat_template.jinja"
MAX_TEMPLATE = 1 << 20  # bytes of a file; the template itself has its own limits
FORMATS = {"f32": BY_NAME["F32"], "f16": BY_NAME["F16"], "bf16": BY_NAME["BF16"]}
_SPARE = (".rotary_emb.inv_freq",)  # ends of the names of tensors that old checkpoints have and nobody needs


class Checkpoint(GgufFile):
    """The model of a checkpoint folder, in GGUF's words."""

    adjacent_pairs = False

    def __init__(self, folder: Path, metadata: dict[str, Any], tensors: dict[str, GgufTensor]) -> None:
        super().__init__(str(folder), 0, metadata, tensors)
        self.folder = folder


def is_checkpoint(path: str | os.PathLike[str]) -> bool:
    """True if the path is a folder with a config.json."""
    return (Path(path) / CONFIG).is_file()


def open_checkpoint(folder: str | os.PathLike[str]) -> Checkpoint:
    """Opens the model of a folder.

    Raises UnsupportedError for what would be another model: unknown families, keys and tensors; ModelFileError for files that are missing,
    malformed, or do not fit together.
    """
    place = Path(folder)
    stamp = _stamp(place)
    model = describe(Config.read(place / CONFIG))
    weights = open_weights(place)
    tensors = _tensors(model, weights)
    for name, values in model.given.items():
        tensors[name] = GgufTensor(name, FORMATS["f32"], values.shape, values.view(np.uint8))
    found = Checkpoint(place, model.metadata, tensors)
    found.stamps = (*weights.stamps, stamp)
    if template := _template(place):
        model.metadata["tokenizer.chat_template"] = template
    return found


def _stamp(folder: Path) -> Any:
    try:
        return stamp_of(folder / CONFIG, os.stat(folder / CONFIG))
    except OSError as problem:
        raise ModelFileError(
            f"`{folder / CONFIG}` cannot be read: {problem.strerror}",
            help="a checkpoint folder has config.json, model.safetensors and tokenizer.json",
        ) from None


def _tensors(model: Described, weights: FolderWeights) -> dict[str, GgufTensor]:
    """Returns the tensors of a model by GGUF's names; raises unless the folder has exactly those that the config describes."""
    for piece in model.pieces:  # one after the other: a hostile config may ask for millions of experts
        if missing := next((name for name in piece.names if name not in weights.tensors), None):
            raise ModelFileError(f"the weights have no tensor `{missing}`", facts=[f"shape by config.json: {piece.shape_there}"])
    wanted = {name for piece in model.pieces for name in piece.names}
    for name in weights.tensors:
        if name in wanted or name.endswith(_SPARE) or (name == "lm_head.weight" and _is_embedding(weights, name)):
            continue
        help = "config.json says `tie_word_embeddings`, and this head is another one" if name == "lm_head.weight" else ""
        raise UnsupportedError(
            f"tensor `{shown(name)}` is not part of the model that config.json describes", facts=[f"model: {model.architecture}"], help=help
        )
    found = {piece.gguf: _joined(piece, weights) for piece in model.pieces}
    return model.join(found, model.sizes) if model.join else found


def _is_embedding(weights: FolderWeights, name: str) -> bool:
    """True if a head that is stored beside a tied embedding is the same, byte by byte."""
    a, b = weights.raw(name), weights.raw("model.embed_tokens.weight")
    step = 1 << 24  # bytes that are compared at once: bounds the memory of the comparison
    return len(a) == len(b) and all(np.array_equal(a[at : at + step], b[at : at + step]) for at in range(0, len(a), step))


def _joined(piece: Piece, weights: FolderWeights) -> GgufTensor:
    """Returns what GGUF has as one tensor; raises if parts of it have another shape, or dtypes that differ or are not supported."""
    parts = [_tensor(name, piece, weights) for name in piece.names]
    if "{}" not in piece.name:
        return parts[0]
    if other := next((part for part in parts if part.format is not parts[0].format), None):
        raise UnsupportedError(f"tensor `{other.name}` is in {other.format.name}, and those of other experts in {parts[0].format.name}")
    name, size = piece.name.format("*"), sum(part.size for part in parts)
    return LazyTensor(name, parts[0].format, piece.shape, size, lambda: np.stack([part.data for part in parts]))


def _tensor(name: str, piece: Piece, weights: FolderWeights) -> GgufTensor:
    """Returns a tensor of the folder; raises if it has another shape or a dtype that is not supported."""
    shape, kind = weights.shape(name), weights.dtype(name)
    if shape != piece.shape_there:
        raise ModelFileError(f"tensor `{name}` has the shape {shape}, and config.json says {piece.shape_there}")
    if piece.raw and kind == "u8":
        return GgufTensor(name, BY_NAME["I8"], shape, weights.raw(name).reshape(shape))
    if (format := FORMATS.get(kind)) is None or piece.raw:
        raise UnsupportedError(
            f"tensor `{name}` has the dtype {kind}, which is not supported for it",
            facts=[f"supported: {'u8' if piece.raw else ', '.join(FORMATS)}"],
        )
    data = weights.raw(name)
    if piece.plus:
        sums = dequantize(format, data.reshape(1, -1)).reshape(-1) + np.float32(piece.plus)
        return GgufTensor(name, FORMATS["f32"], shape, sums.astype(np.float32).view(np.uint8))
    return GgufTensor(name, format, shape, data.reshape(*shape[:-1], -1))


def _template(folder: Path) -> str:
    """Returns the chat template: of `chat_template.jinja`, else of tokenizer_config.json (its default one), else an empty text."""
    if (folder / TEMPLATE).exists():
        return read_text(folder / TEMPLATE, MAX_TEMPLATE)
    if not (folder / "tokenizer_config.json").exists():
        return ""
    config = Config.read(folder / "tokenizer_config.json")
    found = config.get("chat_template")
    if isinstance(found, list):  # several by name
        named = {str(t.get("name")): t.get("template") for t in found if isinstance(t, dict)}
        found = named.get("default")
    if found is not None and not isinstance(found, str):
        raise config.wrong("chat_template", "a string, or a list of templates with a name")
    return found or ""
