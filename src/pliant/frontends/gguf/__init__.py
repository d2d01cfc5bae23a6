"""Reader of GGUF files, which are not trusted: `parse.py` parses bytes, `reader.py` maps models. Tensor formats: `quantization/`.

file = open_gguf("model.gguf")
file.architecture, file.integer("llama.block_count"), file.tensors["token_embd.weight"].dequantized()
"""

from ...quantization.formats import BY_NAME, FORMATS, Format
from .reader import GgufFile, GgufTensor, open_gguf

__all__ = ["BY_NAME", "FORMATS", "Format", "GgufFile", "GgufTensor", "open_gguf"]
