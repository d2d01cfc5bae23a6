"""The tables of the report: one row for each kernel, and one for each launch; the page sorts them by any column.

table = kernel_table(x)
table.columns, table.rows[0].cells[0].text
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from ..support.units import per_second
from .bounds import MOST_ROWS
from .facts import Facts
from .profile import Launch, Limits, Profile

TIMES = ("ms", "median", "spread", "share", "operations", "memory", "of limit", "above limit")
_MOST_NAMES = 12  # layers of one kernel that are named; a kernel of a repeated layer has many


class Cell(NamedTuple):
    """A cell: its text, the number that its column is sorted by (None: unknown, or sorted by text), and the kernel that it links to."""

    text: str
    value: float | None = None
    kernel: int | None = None


class Column(NamedTuple):
    """The head of a column; a column of numbers is aligned to the right."""

    name: str
    has_numbers: bool


class Table(NamedTuple):
    """A table of the report: `is_top` shows the first ten rows at first, `omitted` is the number of rows that the page leaves out.

    Links lead to the row with the text "3" in its first cell by "#launch-3", if `row_id` is "launch-".
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    is_top: bool
    omitted: int
    row_id: str = ""


def kernel_table(x: Facts) -> Table | None:
    """Returns the table of kernels with their times, the slowest first; None without a profile."""
    if not x.total:
        return None
    rows = [
        [Cell(x.name(func), kernel=x.numbers[func]), Cell(str(len(which)), len(which)), *_times(x.measured(which), x)]
        for func, which in x.launched().items()
    ]
    columns = [Column("kernel", False), Column("launches", True), *(Column(name, True) for name in TIMES)]
    return Table(columns, rows[:MOST_ROWS], is_top=True, omitted=max(0, len(rows) - MOST_ROWS))


def launch_table(x: Facts) -> Table:
    """Returns the table of launches in their order, with times after a profile; of more than MOST_ROWS, the slowest are shown."""
    is_timed = x.total > 0
    order = sorted(range(len(x.steps)), key=lambda i: -sum(t.duration for t in x.measured([i])))[:MOST_ROWS]
    columns = [Column("", True), Column("kernel", False), Column("layers", False)]
    columns += [Column(name, True) for name in TIMES] if is_timed else []
    return Table(columns, [_launch_row(x, i, is_timed) for i in sorted(order)], False, len(x.steps) - len(order), "launch-")


def _launch_row(x: Facts, i: int, is_timed: bool) -> list[Cell]:
    """Returns the cells of a launch; `is_timed` adds those of its times."""
    step = x.steps[i]
    cells = [Cell(str(i), i), Cell(x.name(step.func), kernel=x.numbers[step.func]), Cell(layers_text(step.layers))]
    return cells + (_times(x.measured([i]), x) if is_timed else [])


def layers_text(layers: Sequence[str]) -> str:
    """Returns the names of layers as text: the first of them, and the number of the others."""
    names = list(dict.fromkeys(layers))
    more = f" … {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _times(found: Sequence[Launch], x: Facts) -> list[Cell]:
    """Returns the cells of TIMES for launches together; empty cells for what is not known."""
    if not found:
        return [Cell("")] * len(TIMES)
    assert x.profile is not None and x.machine is not None
    return [*_spent(found, x.profile), *_rates(found, x.machine)]


def _spent(found: Sequence[Launch], profile: Profile) -> list[Cell]:
    """Returns the time of launches in the fastest run, its median and spread over all runs, and its share of the fastest run."""
    spent, share = sum(t.duration for t in found), sum(t.duration for t in found) / max(1, profile.wall)
    runs = [sum(run) for run in zip(*(t.samples for t in found), strict=True)]
    over_runs = [_ms(statistics.median(runs)), _ms(max(runs) - min(runs))] if len(runs) > 1 else [Cell(""), Cell("")]
    return [_ms(spent), *over_runs, Cell(f"{share:.1%}", share)]


def _rates(found: Sequence[Launch], machine: Limits) -> list[Cell]:
    """Returns the rates of launches, their share of the roofline, and the time above it."""
    above = [t.above_limit(machine) for t in found]
    seconds = sum(t.duration for t in found) * 1e-9
    if not seconds or any(a is None for a in above):
        return [Cell("")] * 4
    operations, moved = sum(t.operations or 0 for t in found), sum(t.bytes or 0 for t in found)
    limit = sum((t.of_limit(machine) or 0) * t.duration * 1e-9 for t in found) / seconds
    rate = Cell(per_second(operations / seconds, "FLOP"), operations / seconds) if operations else Cell("")
    memory = Cell(per_second(moved / seconds, "B"), moved / seconds)
    return [rate, memory, Cell(f"{limit:.0%}", limit), _ms(sum(a or 0 for a in above))]


def _ms(nanoseconds: float) -> Cell:
    return Cell(f"{nanoseconds / 1e6:.3f}", nanoseconds)
