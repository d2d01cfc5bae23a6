"""Tokenizers: convert text to token ids of a model's vocabulary, and back.

    tokenizer = from_gguf(open_gguf("model.gguf"))
    ids = tokenizer.encode("<|im_start|>user\\nHi<|im_end|>", add_special=False, parse_special=True)
    tokenizer.decode(ids)

`tokenizer.py` has what all kinds share; `bpe.py`, `sentencepiece.py` and `wordpiece.py` are the kinds; `split.py` is the pre-tokenizer of
BPE (cuts text into words); `from_gguf.py`, `from_json.py` and `from_folder.py` read vocabularies from files.
"""

from .from_folder import from_folder
from .from_gguf import from_gguf
from .from_json import from_json
from .tokenizer import StreamDecoder, Tokenizer

__all__ = ["StreamDecoder", "Tokenizer", "from_folder", "from_gguf", "from_json"]
