"""The table of the default rules: one list for each kind of target, in the order in which they are tried.

Rules of one phase stand together. The phases: instructions that users have declared, convolutions before anything is inlined (operands
that are padded stay apart, so that sums have no condition), inlining, decoding, products, rows, transposes, elementwise; the last rule
takes anything.
"""

from __future__ import annotations

from ...target import Target
from .convolution import BLOCKED_CONVOLUTION, CONVOLUTION
from .declared_instructions import INSTRUCTIONS
from .dot_products import DOT_PRODUCTS
from .elementwise import ELEMENTWISE
from .fallback import FALLBACK
from .inlining import DECODING, DECODING_INTO_COPIES, INLINING
from .matmul import MATMUL
from .one_row import ONE_ROW
from .record import Rule
from .reduction import ONE_REDUCTION, ROWS
from .transposes import TRANSPOSE
from .windows import WINDOWS

CPU: tuple[Rule, ...] = (
    INSTRUCTIONS,
    BLOCKED_CONVOLUTION,
    CONVOLUTION,
    WINDOWS,
    INLINING,
    DECODING,
    DOT_PRODUCTS,
    ONE_ROW,
    MATMUL,
    DECODING_INTO_COPIES,
    ROWS,
    ONE_REDUCTION,
    TRANSPOSE,
    ELEMENTWISE,
    FALLBACK,
)


def rules_for(target: Target) -> tuple[Rule, ...]:
    """The rules for a target, in order."""
    return CPU
