"""The operators of graph programs, as functions to be called inside a `@function`: `ops.matmul(x, w)`, `ops.silu(x)`, …

Each is declared in the file of its family: what it results in, its meaning in numpy, its loop program as stages. Names are
those of core ATen and ONNX. `TABLE` has the declarations by name.
"""

from .activation import gelu, relu, sigmoid, silu, tanh
from .calls import call_function, call_host, call_library, constant, match_cast
from .compare import cast, equal, greater, greater_equal, less, less_equal, logical_and, logical_not, logical_or, not_equal, where
from .elementwise import abs, add, cos, div, erf, exp, floor_divide, log, maximum, minimum, mul, neg, remainder, rsqrt, sin, sqrt, sub
from .linalg import linear, matmul
from .nn import rms_norm, rotary_embedding
from .reduce import max, mean, min, softmax, sum
from .shape import concat, full, permute, reshape, scalar, slice, take

__all__ = [
    "abs",
    "add",
    "call_function",
    "call_host",
    "call_library",
    "cast",
    "concat",
    "constant",
    "cos",
    "div",
    "equal",
    "erf",
    "exp",
    "floor_divide",
    "full",
    "gelu",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "linear",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "match_cast",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mul",
    "neg",
    "not_equal",
    "permute",
    "relu",
    "remainder",
    "reshape",
    "rms_norm",
    "rotary_embedding",
    "rsqrt",
    "scalar",
    "sigmoid",
    "silu",
    "sin",
    "slice",
    "softmax",
    "sqrt",
    "sub",
    "sum",
    "take",
    "tanh",
    "where",
]
