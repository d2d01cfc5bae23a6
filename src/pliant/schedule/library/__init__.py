"""Default schedules: rules written only with schedule primitives and parameterized by the target's facts.

    func, why = default_schedule(func, target)      # "matmul: `c` in tiles of 6x16 in registers, with `relu` in its write-back"
    family = default_family(func, target)           # the same before its variants become one program

The rules are a table (`table.py`), and the driver applies them in order (`driver.py`). This package exports what other parts of the
compiler may ask of the rules: which layouts they want for operands (NCHWc, packed weights), which sizes their schedules need not know, and
how they add and share (modules of search spaces do the same).
"""

from __future__ import annotations

from collections.abc import Mapping

from ...loop.stmt import Block, For, Func
from ...sym.expr import Var
from ...target import Target
from ..decisions import Decisions, OfKernel
from .accumulate import Loops
from .channels import makes_image
from .convolution_roles import block_sizes
from .driver import default_family, default_schedule
from .layouts import operand_layouts, with_casts_inside
from .parallelize import share
from .record import Packing, Parts, Promotable, Tile, tried
from .table import declared_rules_text, rule, rules_for, unregister_rule
from .usual_sums import cut_sum, end_sum, finish_sum, finish_sums, prepare_sums
from .winograd import transforms_tiles


def promotable(func: Func, block: Block, nest: Mapping[Var, For], target: Target, decisions: OfKernel | None = None) -> Promotable | None:
    """Return the sizes of a block that its rule need not know as constants; None if no rule of the target answers for the block.

    `nest` maps each iterator of the block to its loop. Without `decisions`, all decisions have their defaults.
    """
    kernel = Decisions().of_kernel(func.name) if decisions is None else decisions
    answers = (r.promotable(func, block, nest, kernel.about(block.name, target)) for r in rules_for(target) if r.promotable is not None)
    return next((sizes for sizes in answers if sizes is not None), None)


__all__ = [
    "Loops",
    "Packing",
    "Parts",
    "Promotable",
    "Tile",
    "block_sizes",
    "cut_sum",
    "declared_rules_text",
    "default_family",
    "default_schedule",
    "end_sum",
    "finish_sum",
    "finish_sums",
    "makes_image",
    "operand_layouts",
    "prepare_sums",
    "promotable",
    "rule",
    "share",
    "transforms_tiles",
    "tried",
    "unregister_rule",
    "with_casts_inside",
]
