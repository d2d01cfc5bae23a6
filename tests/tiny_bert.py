"""A tiny BERT with random weights, in a folder as the Hugging Face hub has them, written without torch."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from pliant.llm.models.bert import Bert, Settings

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "a", "dog"]


def write_bert(folder: Path) -> Path:
    """A folder with a tiny random BERT, as the Hugging Face hub has them."""
    model = Bert(Settings(width=32, heads=2, ffn=48, layers=1, vocab_size=len(WORDS), positions=24))
    rng = np.random.default_rng(5)
    header: dict[str, Any] = {}
    data = b""
    for name, parameter in model.named_parameters():
        values = (rng.standard_normal(tuple(map(int, parameter.shape))) * 0.3).astype(np.float32)
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48, "num_hidden_layers": 1, "type_vocab_size": 2}
    config = {"model_type": "bert", "vocab_size": len(WORDS), "max_position_embeddings": 24, **sizes}
    (folder / "config.json").write_text(json.dumps(config))
    around = [{"SpecialToken": {"id": "[CLS]"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "[SEP]"}}]
    tokenizer = {
        "normalizer": {"type": "BertNormalizer"},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": around},
        "added_tokens": [{"id": i, "content": w, "special": True} for i, w in enumerate(WORDS[:5])],
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {w: i for i, w in enumerate(WORDS)}},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder
