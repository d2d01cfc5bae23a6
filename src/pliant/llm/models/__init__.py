"""Decoder architectures as `pliant.nn` modules, one file per family.

    model = build(open_gguf("model.gguf"))       # an nn.Module: pliant.compile(model)

The file of a family reads the settings from the GGUF metadata and defines a layer; `parts.py` has what families share.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...frontends.gguf import GgufFile
from ...support.errors import UnsupportedError
from .known import check_keys, check_tensors

FAMILIES = {
    "llama": "llama",
    "qwen2": "qwen",
    "qwen3": "qwen",
    "qwen3moe": "qwen",
    "gemma2": "gemma",
    "gemma3": "gemma",
    "phi3": "phi",
    "gpt-oss": "gpt_oss",
}  # `general.architecture` -> module


def build(file: GgufFile, cache: Any = None) -> Any:
    """Returns the module of a model; `cache` is the dtype of the KV cache. Raises UnsupportedError for what would be computed wrongly."""
    family = FAMILIES.get(file.architecture)
    if family is None:
        raise UnsupportedError(
            f"gguf: models of the architecture `{file.architecture}` are not supported",
            facts=[f"file `{file.name}`", f"supported: {', '.join(sorted(FAMILIES))}"],
        )
    check_keys(file)
    model = import_module(f".{family}", __name__).build(file, cache)
    check_tensors(file)
    return model
