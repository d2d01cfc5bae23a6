"""What a model's file may say, as data: each key of its architecture and each tensor is used, known to be harmless, or refused by name.

A decoder is its file's metadata and tensors; what is passed over makes it another model, and its words are wrong without a sign of it. So
the keys are listed: `USED` are those that a family's code reads, `NEUTRAL` say something only under another value than the one given
here, `SILENT` say nothing about what is computed. Keys outside of the architecture's name (`general.`, `tokenizer.`, `split.`,
`quantize.`) are not about the decoder.

    check_keys(file)              # before a model is built
    check_tensors(file)           # after it: `file.read` has what was asked for
"""

from __future__ import annotations

import re
from typing import Any

from ...frontends.gguf import GgufFile
from ...frontends.gguf.parse import shown
from ...support.errors import UnsupportedError

_EVERY = {
    *("block_count", "context_length", "embedding_length", "feed_forward_length"),
    *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.scale"),
    *("attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor"),
}
_GEMMA = {"attention.sliding_window", "attention.sliding_window_pattern", "attn_logit_softcapping", "final_logit_softcapping"}
USED: dict[str, set[str]] = {
    "llama": _EVERY,
    "qwen2": _EVERY,
    "qwen3": _EVERY,
    "gemma2": _EVERY | _GEMMA,
    "gemma3": _EVERY | _GEMMA | {"rope.freq_base_swa"},
    "phi3": _EVERY | {"attention.sliding_window", "rope.scaling.original_context_length", "rope.scaling.attn_factor"},
}
# What a key may say where a family does not read it: with this, the model is the one that is computed.
NEUTRAL: dict[str, Any] = {
    "attention.causal": True,
    "attention.clamp_kqv": 0.0,
    "attention.max_alibi_bias": 0.0,
    "attention.sliding_window": 0,  # or not below the context
    "attn_logit_softcapping": 0.0,
    "embedding_scale": 1.0,
    "expert_count": 0,
    "expert_shared_count": 0,
    "expert_used_count": 0,
    "final_logit_softcapping": 0.0,
    "logit_scale": 1.0,
    "residual_scale": 1.0,
    "rope.scale_linear": 1.0,
    "rope.scaling.attn_factor": 1.0,
    "tensor_data_layout": "Meta AI original pth",  # queries and keys as llama's files have them
    "use_parallel_residual": False,
}
# About the file, other ways to use the model, or what follows from the tensors.
SILENT = {
    "pooling_type",  # for vectors of texts
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",  # for ways to lengthen a context that are refused
    "vocab_size",
}
# Tensors that a family does not need, by the patterns of their names.
SPARE: dict[str, tuple[str, ...]] = {
    "llama": (r"blk\.\d+\.attn_rot_embd\.weight",),  # the frequencies, in files of early converters
    "phi3": (r"rope_factors_long\.weight",),  # for texts beyond the original context
}


def check_keys(file: GgufFile) -> None:
    """Refuses metadata that would make the model another one than is computed."""
    kind = file.architecture
    for key, value in file.metadata.items():
        name = key.removeprefix(f"{kind}.")
        if name == key or name in USED[kind] or name in SILENT:
            continue
        if name not in NEUTRAL:
            known = ", ".join(sorted(USED[kind] | NEUTRAL.keys() | SILENT))
            raise _refused(file, f"`{shown(key)}` is not known", [f"found: {shown(repr(value))}", f"known: {known}"])
        if not _says_nothing(file, name, value):
            raise _refused(file, f"`{key}` is {shown(repr(value))}", [f"supported: {NEUTRAL[name]!r}"])


def _says_nothing(file: GgufFile, name: str, value: Any) -> bool:
    """Whether a model whose family does not read a key is the same with it."""
    if name == "attention.sliding_window" and isinstance(value, int) and value >= file.integer(f"{file.architecture}.context_length"):
        return True
    usual = NEUTRAL[name]
    alike = isinstance(value, bool | str) == isinstance(usual, bool | str) and isinstance(value, str | bool | int | float)
    return alike and bool(value == usual)


def check_tensors(file: GgufFile) -> None:
    """Refuses a file with tensors that nothing has read."""
    spare = [re.compile(p) for p in SPARE.get(file.architecture, ())]
    unread = [name for name in file.tensors if name not in file.read and not any(p.fullmatch(name) for p in spare)]
    if unread:
        more = [f"and {len(unread) - 1} more"] if len(unread) > 1 else []
        raise _refused(file, f"tensor `{shown(unread[0])}` is not part of it", more)


def _refused(file: GgufFile, what: str, facts: list[str]) -> UnsupportedError:
    return UnsupportedError(
        f"gguf: {what}, and the result would be that of another model",
        facts=[f"file `{file.name}`", f"architecture `{file.architecture}`", *facts],
    )
