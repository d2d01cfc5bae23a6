"""Reader of checkpoint folders of transformers, which are not trusted: `config.py` reads JSON files, `weights.py` maps safetensors files,
`families.py` and `rope.py` say the same in GGUF's words, `reader.py` opens a folder.

model = open_checkpoint("my-llama/")
"""

from .reader import Checkpoint, is_checkpoint, open_checkpoint

__all__ = ["Checkpoint", "is_checkpoint", "open_checkpoint"]
