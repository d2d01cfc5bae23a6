"""Allowlists for GGUF files: each metadata key of the architecture and each tensor is used, known to be harmless, or refused by name.

Ignoring an unknown key or tensor would silently compute a different model, and its text would be wrong without a sign. So the keys are
listed: `USED` are those that the code of a family reads. `NEUTRAL` are keys that change nothing if they have the value given here.
`SILENT` do not affect the computation. Keys outside the architecture's prefix (`general.`, `tokenizer.`, `split.`, `quantize.`) do not
describe the decoder.

    check_keys(file)              # before a model is built
    check_tensors(file)           # afterwards: `file.read` has the tensors that were used
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
    *("rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"),
}
_EXPERTS = {"expert_count", "expert_used_count", "expert_feed_forward_length"}
_GEMMA = {"attention.sliding_window", "attention.sliding_window_pattern", "attn_logit_softcapping", "final_logit_softcapping"}
USED: dict[str, set[str]] = {
    "llama": _EVERY | {"attention.sliding_window"},
    "qwen2": _EVERY,
    "qwen3": _EVERY,
    "qwen3moe": _EVERY | _EXPERTS,
    "gemma2": _EVERY | _GEMMA,
    "gemma3": _EVERY | _GEMMA | {"rope.freq_base_swa"},
    "phi3": _EVERY | {"attention.sliding_window", "rope.scaling.original_context_length", "rope.scaling.attn_factor"},
    "gpt-oss": _EVERY | _EXPERTS | {"attention.sliding_window"},
}
# Keys that a family does not read, with the only value that does not change the model.
NEUTRAL: dict[str, Any] = {
    "attention.causal": True,
    "attention.clamp_kqv": 0.0,
    "attention.max_alibi_bias": 0.0,
    "attention.sliding_window": 0,  # or at least the context
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
    "tensor_data_layout": "Meta AI original pth",  # queries and keys in the order of llama files
    "use_parallel_residual": False,
}
# Keys about the file, about other uses of the model, or implied by the tensors.
SILENT = {
    "pooling_type",  # for embeddings
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",  # for methods of context extension that are refused anyway
    "vocab_size",
}
# Patterns of the names of tensors that a family does not need.
SPARE: dict[str, tuple[str, ...]] = {
    "llama": (r"blk\.\d+\.attn_rot_embd\.weight",),  # RoPE frequencies, which early converters stored
    "phi3": (r"rope_factors_long\.weight",),  # RoPE factors for texts beyond the original context
}


def check_keys(file: GgufFile) -> None:
    """Raises UnsupportedError for metadata that describes a different model than the one that would be computed."""
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
    """True if a key that the family does not read has its neutral value."""
    if name == "attention.sliding_window" and isinstance(value, int) and value >= file.integer(f"{file.architecture}.context_length"):
        return True
    usual = NEUTRAL[name]
    alike = isinstance(value, bool | str) == isinstance(usual, bool | str) and isinstance(value, str | bool | int | float)
    return alike and bool(value == usual)


def check_tensors(file: GgufFile) -> None:
    """Raises UnsupportedError for a file with tensors that the model did not read."""
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
