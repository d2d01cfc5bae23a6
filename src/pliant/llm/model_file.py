"""Opens a language model on disk, whatever its form: a GGUF file, or a checkpoint folder of transformers.

    file = open_model("model.gguf")        # or "my-llama/": config.json, model.safetensors, tokenizer.json
    tokenizer_of(file).encode("Hello")

Both have GGUF's metadata keys and tensor names, so the rest of the code knows one form only.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..frontends.checkpoint import Checkpoint, open_checkpoint
from ..frontends.gguf import GgufFile, open_gguf
from ..support.errors import ModelFileError
from .tokenizer import Tokenizer, from_folder, from_gguf


def open_model(path: str | os.PathLike[str]) -> GgufFile:
    """Opens the model of a GGUF file or of a checkpoint folder.

    Raises ModelFileError if it cannot be read or is malformed, UnsupportedError for a folder that has another model than Pliant knows.
    """
    place = Path(path)
    if place.is_dir():
        return open_checkpoint(place)
    if place.name == "config.json" or ".safetensors" in place.suffixes:
        raise ModelFileError(f"`{place}` is a part of a checkpoint", help=f"pass its folder: `{place.parent}`")
    return open_gguf(place)


def tokenizer_of(file: GgufFile) -> Tokenizer:
    """Returns the tokenizer of an open model; raises ModelFileError or UnsupportedError as `from_gguf` and `from_folder` do."""
    return from_folder(file.folder) if isinstance(file, Checkpoint) else from_gguf(file)
