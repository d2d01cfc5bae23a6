"""The rotation of a config as GGUF describes it: the base, partial rotation, and the way in which the context is extended.

    rotation = rotation_of(config, "llama", 128)      # of heads of 128 elements
    rotation.metadata, rotation.tensors               # {"llama.rope.freq_base": 500000.0}, {"rope_freqs.weight": f32[64]}

Newer configs have `rope_parameters`, older ones `rope_theta` and `rope_scaling`. A way that is not known is refused by name.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...support.errors import UnsupportedError
from ..gguf.parse import shown
from .config import Config

BASE = 10000.0  # if a config has none
WAYS = ("default", "linear", "llama3", "yarn", "longrope")


class Rotation(NamedTuple):
    """A record of what GGUF says of a rotation: metadata without the architecture's prefix, and factors by tensor name."""

    metadata: dict[str, Any]
    tensors: dict[str, NDArray[np.float32]]


def rotation_of(config: Config, head: int) -> Rotation:
    """Returns the rotation of a config for heads of `head` elements; raises UnsupportedError for a way that is not known."""
    return read_rotation(config, *parameters_of(config), head)


def parameters_of(config: Config, usual: float = BASE) -> tuple[Config, float]:
    """Returns the parameters of the rotation and its base (`usual` if there is none).

    They are in `rope_parameters`, or in `rope_scaling` and `rope_theta`.
    """
    newer, older = config.inner("rope_parameters"), config.inner("rope_scaling")
    base = config.positive("rope_theta", usual)
    parameters = newer if newer.values else older
    return parameters, parameters.positive("rope_theta", base)


def read_rotation(config: Config, parameters: Config, base: float, head: int, truncate: bool = True) -> Rotation:
    """Returns the rotation that parameters describe; `truncate` is how the model rounds the bounds of yarn.

    Raises UnsupportedError for a way or a parameter that is not known.
    """
    way = parameters.text("rope_type", parameters.text("type", "default"))
    way = "longrope" if way == "su" else way  # its name in old configs
    read = {"default": _default, "linear": _linear, "llama3": _llama3, "yarn": _yarn, "longrope": _longrope}.get(way)
    if read is None:
        raise UnsupportedError(
            f"{parameters.name}: a rotation of the kind `{shown(way)}` is not supported",
            facts=[f"supported: {', '.join(WAYS)}"],
        )
    part = parameters.positive("partial_rotary_factor", config.positive("partial_rotary_factor", 1.0))
    rotated = int(head * part)
    if not 2 <= rotated <= head or rotated % 2:
        raise UnsupportedError(f"{config.name}: {rotated} rotated elements of a head of {head} are not supported")
    found = read(config, parameters, base, rotated)
    metadata = {"rope.freq_base": base, "rope.dimension_count": rotated, **found.metadata}
    if way == "yarn" and parameters.flag("truncate", True) != truncate:
        raise UnsupportedError(f"{parameters.name}: yarn with `truncate` {not truncate} is not supported for this family")
    parameters.refuse_unread({"truncate": truncate}, {"original_max_position_embeddings", "factor"} if way == "default" else ())
    return Rotation(metadata, found.tensors)


def _default(config: Config, p: Config, base: float, rotated: int) -> Rotation:
    return Rotation({"rope.scaling.type": "none"}, {})


def _linear(config: Config, p: Config, base: float, rotated: int) -> Rotation:
    return Rotation({"rope.scaling.type": "linear", "rope.scaling.factor": p.positive("factor")}, {})


def _llama3(config: Config, p: Config, base: float, rotated: int) -> Rotation:
    """The rule of Llama 3, as a divisor of each frequency: 1 for short waves, `factor` for long ones, and a ramp between them."""
    factor, low, high = (p.positive(key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    if not low < high:
        raise p.wrong("low_freq_factor", "a number below `high_freq_factor`")
    trained = p.integer("original_max_position_embeddings", low=1)
    turns = trained / (2 * math.pi) * base ** -(np.arange(0, rotated, 2, dtype=np.float64) / rotated)  # within the original context
    ramp = np.clip((turns - low) / (high - low), 0.0, 1.0)
    divisors = 1.0 / ((1.0 - ramp) / factor + ramp)
    return Rotation({"rope.scaling.type": "none"}, {"rope_freqs.weight": divisors.astype(np.float32)})


def _yarn(config: Config, p: Config, base: float, rotated: int) -> Rotation:
    """Yarn. GGUF has the factor of rotated elements relative to the usual one, 1 + 0.1 ln(factor)."""
    factor = p.positive("factor")
    usual = 1.0 + 0.1 * math.log(factor) if factor > 1 else 1.0
    return Rotation(
        {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": factor,
            "rope.scaling.original_context_length": p.integer(
                "original_max_position_embeddings", config.integer("max_position_embeddings", low=1), low=1
            ),
            "rope.scaling.yarn_beta_fast": p.positive("beta_fast", 32.0),
            "rope.scaling.yarn_beta_slow": p.positive("beta_slow", 1.0),
            "rope.scaling.yarn_attn_factor": p.positive("attention_factor", usual) / usual,
        },
        {},
    )


def _longrope(config: Config, p: Config, base: float, rotated: int) -> Rotation:
    """Phi's factors for short and long texts, and the factor of rotated elements."""
    longest = config.integer("max_position_embeddings", low=1)
    trained = p.integer("original_max_position_embeddings", config.integer("original_max_position_embeddings", longest, low=1), low=2)
    stretch = longest / trained if config.get("original_max_position_embeddings") else p.positive("factor", longest / trained)
    usual = math.sqrt(1.0 + math.log(stretch) / math.log(trained)) if stretch > 1 else 1.0
    tensors = {f"rope_factors_{name}.weight": np.array(p.numbers(f"{name}_factor", rotated // 2), np.float32) for name in ("short", "long")}
    metadata = {"rope.scaling.attn_factor": p.positive("attention_factor", usual), "rope.scaling.original_context_length": trained}
    p.get("factor")
    return Rotation({"rope.scaling.type": "none", **metadata}, tensors)
