"""RoPE frequencies of a model file, and the ways to extend a context: none, linear, yarn, and factors per frequency (Llama 3, longrope).

    frequencies(file, s)         # f32[s.rotated / 2], what `ops.rotary_embedding` takes
    rope_factor(file)            # by which rotated elements are multiplied: above 1 for yarn

Other ways are refused: they would compute a different model.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...frontends.gguf import GgufFile
from ...frontends.gguf.parse import shown
from ...support.errors import ModelFileError, UnsupportedError
from ...support.record import dataclass

WAYS = ("none", "linear", "yarn")


def frequencies(
    file: GgufFile, rotated: int, base: float, factors: np.ndarray[Any, Any] | None = None, *, stretched: bool = True, whole: bool = True
) -> np.ndarray[Any, Any]:
    """Returns the frequencies of RoPE, f32[rotated / 2]: `base` to the power -2k / rotated, divided by `factors` if there are any.

    Before, the file's context extension is applied (unless not `stretched`). `whole`: the bounds of yarn's ramp are rounded outwards to
    whole frequencies; gpt-oss alone does not. Raises UnsupportedError for an extension of another kind.
    """
    exact = base ** -(np.arange(0, rotated, 2, dtype=np.float64) / rotated)
    way = _way(file) if stretched else "none"
    if way == "linear":
        exact = exact / positive(file, f"{file.architecture}.rope.scaling.factor", 1.0)
    if way == "yarn":
        exact = _yarn(file, exact, rotated, base, whole)
    if factors is not None:
        exact = exact / factors
    result: np.ndarray[Any, Any] = exact.astype(np.float32)
    return result


def rope_factor(file: GgufFile) -> float:
    """Returns the factor of rotated elements: for yarn that of the file times 1 + 0.1 ln(scaling factor), else 1.

    A scaling factor of at most 1 counts as 1. Raises UnsupportedError for constants of yarn in a file that does not use it.
    """
    prefix = f"{file.architecture}.rope.scaling"
    yarn = _Yarn.of(file)
    if _way(file) != "yarn":
        if idle := next((key for key in file.metadata if key.startswith(f"{prefix}.yarn_")), None):
            raise UnsupportedError(f"gguf: `{shown(idle)}` is for another extension of the context", facts=[f"file `{file.name}`"])
        return 1.0
    factor = positive(file, f"{prefix}.factor")
    return yarn.attn_factor * (1.0 + 0.1 * math.log(factor) if factor > 1 else 1.0)


@dataclass(frozen=True, slots=True)
class _Yarn:
    """The constants of yarn: the bounds of its ramp in turns within the original context, and the factor of rotated elements."""

    beta_fast: float
    beta_slow: float
    attn_factor: float

    @staticmethod
    def of(file: GgufFile) -> _Yarn:
        """Reads the constants of a file, with yarn's defaults; raises UnsupportedError for an `ext_factor` other than 1."""
        prefix = f"{file.architecture}.rope.scaling.yarn"
        if file.number(f"{prefix}_ext_factor", 1.0) != 1.0:
            raise UnsupportedError(f"gguf: a `{prefix}_ext_factor` other than 1 is not supported", facts=[f"file `{file.name}`"])
        fast, slow = positive(file, f"{prefix}_beta_fast", 32.0), positive(file, f"{prefix}_beta_slow", 1.0)
        return _Yarn(fast, slow, positive(file, f"{prefix}_attn_factor", 1.0))


def _way(file: GgufFile) -> str:
    """Returns how the file extends its context: "none", "linear" (if it does not say) or "yarn"; raises UnsupportedError for other ways."""
    way = file.text(f"{file.architecture}.rope.scaling.type", "linear")  # old files have a factor and no type
    if way not in WAYS:
        raise UnsupportedError(
            f"gguf: a context that is extended by `{shown(way)}` is not supported",
            facts=[f"file `{file.name}`", f"supported: {', '.join(WAYS)}"],
        )
    return way


def _yarn(file: GgufFile, exact: np.ndarray[Any, Any], rotated: int, base: float, whole: bool) -> np.ndarray[Any, Any]:
    """Returns frequencies after yarn: high ones as they are, low ones divided by the factor, and a linear ramp between them."""
    prefix, yarn = f"{file.architecture}.rope.scaling", _Yarn.of(file)
    factor, trained = positive(file, f"{prefix}.factor"), positive(file, f"{prefix}.original_context_length")

    def pair_of(turns: float) -> float:
        """Returns the pair, as a real number, that turns so many times within the original context."""
        return rotated * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

    if base == 1.0:
        raise ModelFileError("gguf: yarn needs frequencies that differ, and the base of the rotation is 1", facts=[f"file `{file.name}`"])
    low, high = pair_of(yarn.beta_fast), pair_of(yarn.beta_slow)
    low, high = (math.floor(low), math.ceil(high)) if whole else (low, high)
    low, high = max(low, 0), min(high, rotated - 1)
    ramp = np.clip((np.arange(rotated // 2) - low) / max(high - low, 0.001), 0.0, 1.0)
    mixed: np.ndarray[Any, Any] = exact / factor * ramp + exact * (1.0 - ramp)
    return mixed


def positive(file: GgufFile, key: str, *default: float) -> float:
    """Returns a number of the metadata, or the default; raises ModelFileError if it is missing without a default, or not above 0."""
    value = file.number(key, *default)
    if not value > 0:
        raise ModelFileError(f"gguf: `{key}` is {value}, where a number above 0 is expected", facts=[f"file `{file.name}`"])
    return value
