"""GGUF files: a reader that trusts nothing (`reader.py`), the tensor types as data (`types.py`), and what they mean (`dequantize.py`).

file = open_gguf("model.gguf")
file.architecture, file.integer("llama.block_count"), file.tensors["token_embd.weight"].dequantized()
"""

from ...quantization.formats import BY_NAME, FORMATS, Format
from .reader import GgufFile, GgufTensor, open_gguf

__all__ = ["BY_NAME", "FORMATS", "Format", "GgufFile", "GgufTensor", "open_gguf"]
