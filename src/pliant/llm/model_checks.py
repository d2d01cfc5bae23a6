"""Checks of a model file that talks nonsense: is the template, the tokenizer, a tensor or the file as a whole at fault?

for check in model_checks("model.gguf"):
    check.name, check.fault, check.text     # "tokenizer", "", "5 texts come back as they were"
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..frontends.gguf import GgufFile
from ..frontends.gguf.reader import GgufTensor
from ..quantization.dequantize import dequantize, unread
from ..support.errors import Error
from ..support.record import dataclass
from .model_file import open_model, tokenizer_of

TEXTS = ("Hello, world!", "The year 2024 had 366 days.", "naïve café – 10 €", "def f(x):\n    return x * 2\n", "日本語と emoji 🙂")
SENTENCE = "The sun rises in the east and sets in the west. Water freezes at zero degrees and boils at one hundred degrees."
ROWS = 1 << 22  # elements that are decoded at once, so that a large tensor needs little memory


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check: what was looked at, what is wrong (empty if nothing is), and what was found."""

    name: str
    fault: str
    text: str


def model_checks(path: Path, say: Callable[[str], None] = lambda text: None) -> Iterator[Check]:
    """Yields the results of the checks of a GGUF file or a checkpoint folder, the quick ones first; `say` is told what is being done.

    Raises an Error if the file cannot be opened. An Error within a check is the fault of that check.
    """
    file = open_model(path)
    checks = (("template", _template), ("tokenizer", _tokenizer), ("tensors", _tensors), ("logits", _logits))
    for name, check in checks:
        say(f"checking the {name} of {file.name}")
        try:
            fault, text = check(file)
        except Error as error:
            fault, text = error.what, "; ".join([*error.facts, *([error.help] if error.help else [])])
        yield Check(name, fault, text)


def _template(file: GgufFile) -> tuple[str, str]:
    """Renders a conversation of a system prompt and a question; returns the fault and the rendered text.

    The fault is a message that the prompt leaves out; empty if there is none, or if the file has no template.
    """
    from .prompt import Prompts

    prompts = Prompts(file, tokenizer_of(file))
    if prompts.template is None:
        return "", "there is none: the model continues texts"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}]
    shown = prompts.tokenizer.decode(prompts.encode(messages), special=True)
    lost = [m["content"] for m in messages if m["content"] not in shown]
    return (f"it leaves out {lost[0]!r}" if lost else ""), repr(shown)


def _tokenizer(file: GgufFile) -> tuple[str, str]:
    """Encodes texts and decodes them again; returns the fault and what was found.

    The fault is the first text that the decoded text does not contain: a space or tokens around it are allowed.
    """
    tokenizer = tokenizer_of(file)
    for text in TEXTS:
        back = tokenizer.decode(tokenizer.encode(text))
        if text not in back:
            return f"{text!r} comes back as {back!r}", ""
    return "", f"{len(TEXTS)} texts come back as they were"


def _tensors(file: GgufFile) -> tuple[str, str]:
    """Looks in every tensor for values that are no numbers, and for matrices of zeros; returns the first fault and what was found."""
    for tensor in file.tensors.values():
        largest = 0.0
        for part in _parts(tensor):
            if not np.isfinite(part).all():
                return f"tensor `{tensor.name}` ({tensor.format.name}) has values that are not finite", ""
            largest = max(largest, float(np.abs(part).max(initial=0)))
        if largest == 0 and len(tensor.shape) > 1:
            return f"tensor `{tensor.name}` ({tensor.format.name}) is all zeros", ""
    return "", f"{len(file.tensors)} tensors have finite values"


def _parts(tensor: GgufTensor) -> Iterator[Any]:
    """Yields the decoded values of a tensor, some rows at a time; raises UnsupportedError for a format that cannot be decoded."""
    if not tensor.format.known:
        raise unread(tensor.format, tensor.name)
    rows = tensor.data.reshape(-1, tensor.data.shape[-1]) if tensor.data.ndim else tensor.data.reshape(1, -1)
    step = max(1, ROWS // max(1, math.prod(tensor.shape) // max(1, len(rows))))
    for first in range(0, len(rows), step):
        yield dequantize(tensor.format, rows[first : first + step])


def _logits(file: GgufFile) -> tuple[str, str]:
    """Computes how surprised the model is by a plain English sentence; returns the fault and the perplexity as a text.

    It is a fault if the perplexity is that of chance, the size of the vocabulary, or more, and if logits are not finite.
    """
    from .lm import LLM

    lm = LLM(file.name, context=min(256, file.integer(f"{file.architecture}.context_length", 256)))
    ids = lm.tokenizer.encode(SENTENCE)
    logits = lm.logits(ids).astype(np.float64)
    if not np.isfinite(logits).all():
        return "logits are not finite", ""
    shifted = logits[:-1] - logits[:-1].max(-1, keepdims=True)
    chances = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    perplexity = float(np.exp(-chances[np.arange(len(ids) - 1), ids[1:]].mean()))
    text = f"perplexity {perplexity:.4g} on a plain sentence of {len(ids)} tokens"
    return ("the model is more surprised than by chance" if perplexity >= lm.engine.vocab_size else ""), text
