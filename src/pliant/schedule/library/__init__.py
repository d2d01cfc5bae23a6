"""Default schedules: rules written only with primitives, parameterised by what the target is.

    func, why = default_schedule(func, target)      # "matmul: `c` in tiles of 6x16 in registers, with `relu` in its write-back"
    family = default_family(func, target)           # the same before its variants become one program

The rules are a table (`table.py`), which the driver goes through (`driver.py`). What other parts of the compiler ask of the rules is here,
and nothing else: how they would like operands to lie, and which sizes their schedules need not know.
"""

from __future__ import annotations

from .driver import default_family, default_schedule

__all__ = ["default_family", "default_schedule"]
