"""Default schedules: rules written only with primitives, parameterised by what the target is.

    func, why = default_schedule(func, target)      # "matmul: `c` in tiles of 6x16 in registers, with `relu` in its write-back"
    family = default_family(func, target)           # the same before its variants become one program

A rule takes some nests of a program or says why it does not; the last one takes anything. First, elementwise producers are
computed where they are read, where that costs nothing. A program with the attribute `scheduled` is returned as it is. Where a rule
would do better one way for some dims and another way for others, the whole program has a variant for each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...loop.stmt import Block, Func
from ...support.errors import ScheduleError
from ...support.refusal import Refusal
from ...sym.expr import FALSE, TRUE, Expr
from ...sym.simplify import simplify
from ...target import Target
from ..family import Family, Variant
from ..nest import allocation, base_facts, blocks, readers
from ..schedule import Schedule
from .convolution import schedule_convolution
from .convolution_roles import along_channels, blocked_convolution_of, convolution_of, in_blocks, over_image, windows_of
from .dot_products import dot_product_of, schedule_dot_product, worth_words
from .elementwise import schedule_elementwise
from .fallback import schedule_anything
from .match import (
    NotApplicable,
    decodes,
    elementwise,
    find_block,
    has_block,
    is_cheap,
    matmul_of,
    reads_once,
    root_nests,
    sums_rows,
    tried,
    untouched,
)
from .matmul import schedule_matmul, worth_copies
from .one_row import is_one_row, schedule_one_row
from .reduction import schedule_rows, short_rows
from .transposes import schedule_transpose, transposed
from .units import without_units
from .windows import schedule_windows


def default_schedule(func: Func, target: Target) -> tuple[Func, str]:
    """The program scheduled by the rules for the target, and which rule was applied to what, and why."""
    if func.attrs.get("scheduled"):
        return func, "as it stands: the program says that it is scheduled"
    family = default_family(func, target)
    return family.program(), family.why()


def default_family(func: Func, target: Target) -> Family:
    """The family of the program by the rules for the target, which do not see loops and dims of one element."""
    squeezed = without_units(func)
    found = _family(squeezed.func, target)
    variants = tuple(Variant(v.guard, squeezed.restored(v.func), v.why) for v in found.variants)
    return Family(func, variants)


def _family(func: Func, target: Target) -> Family:
    worth = next((e for b in blocks(func.body) for f in (worth_words, worth_copies) if (e := f(func, b, target)) is not None), FALSE)
    guard = simplify(worth, base_facts(func))
    if guard is FALSE:
        short = short_rows(func)
        guarded = (_variant(short.func, target, short.guard, copy=False),) if short is not None else ()
        return Family(func, (*guarded, _variant(func, target, TRUE, copy=False)))
    copying = _variant(func, target, guard, copy=True)
    return Family(func, (copying,) if guard is TRUE else (copying, _variant(func, target, TRUE, copy=False)))


def _variant(func: Func, target: Target, guard: Expr, copy: bool) -> Variant:
    s = Schedule(func)
    said = _convolutions(s, target)
    said += _inline(s, target)
    decoding = [b.name for b in blocks(s.program.body) if decodes(s.program, b)]
    if not copy:
        said += _inline_decoding(s, decoding)
    for b in blocks(s.program.body):
        if not isinstance(dot_product_of(s.program, b, target), Refusal):
            said += _attempt(s, "dot products", partial(schedule_dot_product, s, b.name, target, copy))
    for b in untouched(s.program):
        if is_one_row(s.program, b):
            said += _attempt(s, "one row", partial(schedule_one_row, s, b.name, target))
            if has_block(s.program, b.name) and find_block(s.program, b.name) not in untouched(s.program):
                continue
        if not isinstance(matmul_of(b), Refusal) and has_block(s.program, b.name):
            said += _attempt(s, "matmul", partial(schedule_matmul, s, b.name, target, copy))
    if copy:  # into the copies of panels
        said += _inline_decoding(s, decoding)
    for group in _groups(s.program):
        if any(i.kind != "S" for b in group for i in b.iters):
            said += _attempt(s, "rows", partial(schedule_rows, s, [b.name for b in group], target))
    for b in untouched(s.program):  # what does not go together with what follows it
        if any(i.kind == "R" for i in b.iters):
            said += _attempt(s, "rows", partial(schedule_rows, s, [b.name], target))
    for b in untouched(s.program):
        if not isinstance(transposed(b), Refusal):
            said += _attempt(s, "transpose", partial(schedule_transpose, s, b.name, target))
    for b in untouched(s.program):
        if elementwise(b) is not None:
            said += _attempt(s, "elementwise", partial(schedule_elementwise, s, b.name, target))
    rest = [b.name for b in untouched(s.program)]
    if rest:
        said.append(schedule_anything(s, rest, target))
    return Variant(guard, s.func, "; ".join(said) or "nothing to schedule")


def _convolutions(s: Schedule, target: Target) -> list[str]:
    """Before anything is inlined: operands that are padded stay apart, so that sums have no condition."""
    said: list[str] = []
    for b in blocks(s.program.body):
        if not isinstance(blocked_convolution_of(s.program, b, target), Refusal):
            said += _attempt(s, "convolution", partial(schedule_convolution, s, b.name, target))
    for b in untouched(s.program):
        if sums_rows(b):
            continue
        roles = convolution_of(b)
        if isinstance(roles, Refusal) or not (isinstance(matmul_of(b), Refusal) or over_image(b, roles)):
            continue
        if along_channels(s.program, b, target) and isinstance(dot_product_of(s.program, b, target), Refusal):
            said += _attempt(s, "convolution", partial(schedule_convolution, s, b.name, target))
    for b in blocks(s.program.body):
        other = isinstance(matmul_of(b), Refusal) or in_blocks(s.program, b, target)  # pools of blocks of channels reduce columns, too
        if other and b in untouched(s.program) and not isinstance(windows_of(b), Refusal):
            said += _attempt(s, "windows", partial(schedule_windows, s, b.name, target))
    return said


def _attempt(s: Schedule, name: str, rule: Callable[[], str]) -> list[str]:
    """What a rule says it did, or why it does not apply; then nothing was done."""
    try:
        with s.attempt():
            return [rule()]
    except NotApplicable as reason:
        return [f"not {name}: {reason}"]
    except ScheduleError as error:
        return [f"not {name}: {error.what}"]


def _inline(s: Schedule, target: Target) -> list[str]:
    """Compute elementwise producers where they are read, where each element is read once or costs next to nothing."""
    done: list[str] = []
    for b in blocks(s.program.body):
        store = elementwise(b)
        if store is None or allocation(s.program, store.buffer) is None or decodes(s.program, b):
            continue
        users = readers(s.program, store.buffer)
        if any(u not in untouched(s.program) for u in users):  # a rule has seen to it that it stays apart
            continue
        if any(not isinstance(dot_product_of(s.program, u, target), Refusal) for u in users):  # instructions read their factors from memory
            continue
        if is_cheap(store.value) or (len(users) == 1 and reads_once(users[0], store)):
            try:
                s.compute_inline(b.name)
                done.append(f"`{b.name}`")
            except ScheduleError:
                continue
    return [f"inlined {', '.join(done)}"] if done else []


def _inline_decoding(s: Schedule, names: list[str]) -> list[str]:
    """Compute what decodes the right-hand side of a product where it is read: it is nowhere in memory as a whole."""
    return [f"decoded `{name}` where it is read" for name in names if tried(partial(s.compute_inline, name))]


def _groups(func: Func) -> list[list[Block]]:
    """Runs of neighbouring nests of one block each that no rule has taken yet."""
    groups: list[list[Block]] = [[]]
    free = set(untouched(func))
    for nest in root_nests(func):
        inside = blocks(nest)
        if len(inside) == 1 and inside[0] in free:
            groups[-1].append(inside[0])
        else:
            groups.append([])
    return [g for g in groups if g]
