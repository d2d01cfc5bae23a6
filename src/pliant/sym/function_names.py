"""Names and arities of the scalar functions, and of their forms without fused multiply-add."""

from __future__ import annotations

# name -> number of arguments. The primitive functions are exact on every machine; the others are expanded.
PRIMITIVE_FUNCTIONS: dict[str, int] = {"abs": 1, "floor": 1, "ceil": 1, "round": 1, "trunc": 1, "sqrt": 1}
_OF_ONE = (
    *("exp", "exp2", "expm1", "decay", "log", "log1p", "log2", "log10", "sigmoid", "tanh", "erf", "rsqrt", "sin", "cos", "tan"),
    *("asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"),
)
EXPANDED_FUNCTIONS: dict[str, int] = dict.fromkeys(_OF_ONE, 1) | dict.fromkeys(("pow", "fmod", "atan2"), 2)
FUNCTIONS: dict[str, int] = PRIMITIVE_FUNCTIONS | EXPANDED_FUNCTIONS
# Expanded function whose definition contains an FMA -> the name of its form without.
UNFUSED: dict[str, str] = {fn: f"{fn}.unfused" for fn in EXPANDED_FUNCTIONS if fn != "rsqrt"}
ARITIES = FUNCTIONS | {form: FUNCTIONS[fn] for fn, form in UNFUSED.items()}
