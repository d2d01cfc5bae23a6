"""Math functions that machines lack, defined in the expression language: their meaning on every target.

Each definition is for f32 and f64; half floats compute in f32 and round once more. Definitions use no table and no branch, so they
vectorize as they are. Their error bounds are in TABLE; infinities, NaN, denormals and signed zeros follow C99's Annex F. Each file is a
family of functions.

Every function has two forms (docs/design/0016-functions-without-fma.md): with fused multiply-add, and without, for machines that lack the
instruction. The second is the first with each `MulAdd` as a product and a sum, or a separate definition where that is not accurate
enough.

    expand(exp(x) * 2)  ->  an expression of fma, shifts and bitcasts
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

from ...dtype import DType, bf16, f16, f32, f64
from ...support.errors import UnsupportedError
from ..expr import Call, Cast, Div, Expr, Var, substitute
from ..function_names import EXPANDED_FUNCTIONS, PRIMITIVE_FUNCTIONS
from ..unfuse import unfuse
from ..walk import rewrite
from .build import number
from .circular import cos, sin, tan
from .error import erf
from .exponential import decay, exp, exp2, expm1, sigmoid, tanh
from .hyperbolic import acosh, asinh, atanh, cosh, sinh
from .inverse import acos, acos_unfused, asin, asin_unfused, atan, atan2
from .logarithm import log, log1p, log2, log10, pow
from .remainder import fmod


class Function(NamedTuple):
    """A definition for operands of f32 or f64, and its largest error in ulps for each; then those of the form without FMA."""

    define: Callable[..., Expr]
    ulp32: float
    ulp64: float
    unfused32: float
    unfused64: float
    remark: str = ""
    unfused: Callable[..., Expr] | None = None  # the definition of the form without FMA, if it is a separate one


def _rsqrt(x: Expr) -> Expr:
    return Div(number(1.0, x), Call("sqrt", x))


# Remarks of TABLE, printed in the documentation.
_TURNS = "NaN for abs(x) >= 2^30 (f32), 2^45 (f64)"
_NORMAL = "e^x for x <= 0; 0 for what is no normal number, x < -87.7 (f32), -708.8 (f64)"
# Error bounds are in ulps; tests measure them.
TABLE: dict[str, Function] = {
    "exp": Function(exp, 1.25, 1.5, 1.25, 1.5),
    "exp2": Function(exp2, 2.0, 1.5, 2.5, 1.5, unfused=partial(exp2, fused=False)),
    "expm1": Function(expm1, 1.25, 2.5, 1.25, 2.5),
    "decay": Function(decay, 6.0, 1.5, 3.0, 1.5, _NORMAL, partial(decay, fused=False)),
    "log": Function(log, 1.0, 1.5, 1.0, 1.5),
    "log1p": Function(log1p, 1.0, 1.5, 1.0, 1.5),
    "log2": Function(log2, 1.0, 1.0, 1.0, 1.0, "whole for powers of 2", partial(log2, fused=False)),
    "log10": Function(log10, 1.0, 1.0, 1.0, 1.0, "whole for powers of 10", partial(log10, fused=False)),
    "pow": Function(pow, 1.0, 1.5, 1.0, 1.75, "all special cases of C99", partial(pow, fused=False)),
    "sigmoid": Function(sigmoid, 2.5, 2.5, 2.5, 2.5),
    "tanh": Function(tanh, 3.0, 3.0, 3.0, 3.0, unfused=partial(tanh, fused=False)),
    "erf": Function(erf, 1.5, 1.5, 1.5, 1.75),
    "rsqrt": Function(_rsqrt, 1.5, 1.5, 1.5, 1.5),
    "sin": Function(sin, 0.75, 1.5, 0.75, 1.5, _TURNS, partial(sin, fused=False)),
    "cos": Function(cos, 0.75, 1.5, 0.75, 1.5, _TURNS, partial(cos, fused=False)),
    "tan": Function(tan, 0.75, 3.0, 0.75, 3.0, _TURNS, partial(tan, fused=False)),
    "asin": Function(asin, 1.0, 2.0, 1.0, 2.0, unfused=asin_unfused),
    "acos": Function(acos, 1.0, 1.5, 1.0, 1.5, unfused=acos_unfused),
    "atan": Function(atan, 1.0, 2.0, 1.0, 2.0),
    "atan2": Function(atan2, 1.0, 2.5, 1.0, 2.5, "the angle of (y, x), signs of zeros as in C99"),
    "sinh": Function(sinh, 1.0, 3.0, 1.0, 3.0),
    "cosh": Function(cosh, 1.0, 3.0, 1.0, 3.0),
    "asinh": Function(asinh, 1.0, 2.0, 1.0, 2.0),
    "acosh": Function(acosh, 1.0, 2.0, 1.0, 2.0),
    "atanh": Function(atanh, 1.0, 2.0, 1.0, 2.0),
    "fmod": Function(fmod, 0.0, 0.0, 0.0, 0.0, "the sign is that of x", partial(fmod, fused=False)),
}


@cache
def definition(fn: str, dtype: DType) -> tuple[tuple[Var, ...], Expr]:
    """Returns the parameters and the value of an expanded function, or of its form without FMA; the value contains no expanded function.

    Half floats compute in f32. Raises UnsupportedError for other dtypes than floats.
    """
    name, _, form = fn.partition(".")
    params = tuple(Var(p, dtype) for p in ("x", "y", "z")[: EXPANDED_FUNCTIONS[name]])
    if dtype in (f16, bf16):
        body: Expr = Cast(dtype, Call(fn, *(Cast(f32, p) for p in params)))
    elif dtype in (f32, f64):
        function = TABLE[name]
        body = unfuse((function.unfused or function.define)(*params)) if form else function.define(*params)
    else:
        raise UnsupportedError(f"`{name}` of {dtype} is not supported", facts=[f"`{name}` takes f32, f64, f16, bf16"])
    return params, expand(body)


def expand(e: Expr, memo: dict[Expr, Expr] | None = None) -> Expr:
    """`e` with every expanded function replaced by its definition; `memo` is shared between calls."""
    memo = {} if memo is None else memo

    def leaf(node: Expr) -> Expr | None:
        if not isinstance(node, Call) or node.fn in PRIMITIVE_FUNCTIONS:
            return None
        params, body = definition(node.fn, node.dtype)
        return substitute(body, dict(zip(params, (rewrite(a, leaf, memo) for a in node.args), strict=True)))

    return rewrite(e, leaf, memo)
