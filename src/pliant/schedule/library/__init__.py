"""Default schedules: rules written only with primitives, parameterised by what the target is.

    func, why = default_schedule(func, target)      # "matmul: `c` in tiles of 6x16 in registers, with `relu` in its write-back"

A rule takes some nests of a program or says why it does not; the last one takes anything. First, elementwise producers are
computed where they are read, where that costs nothing. A program with the attribute `scheduled` is returned as it is.
"""

from __future__ import annotations

from ...loop.stmt import Block, Func
from ...support.errors import ScheduleError
from ...target import Target
from ..nest import allocation, blocks, readers
from ..schedule import Schedule
from .elementwise import schedule_elementwise
from .fallback import schedule_anything
from .match import NotApplicable, elementwise, has_block, is_cheap, matmul_of, reads_once, root_nests
from .matmul import matmul
from .reduction import schedule_rows


def default_schedule(func: Func, target: Target) -> tuple[Func, str]:
    """The program scheduled by the rules for the target, and which rule was applied to what, and why."""
    if func.attrs.get("scheduled"):
        return func, "as it stands: the program says that it is scheduled"
    s = Schedule(func)
    said = _inline(s)
    done: set[str] = set()
    for b in blocks(s.program.body):
        if not isinstance(matmul_of(b), str) and has_block(s.program, b.name):
            before = {x.name for x in blocks(s.program.body)}
            _attempt(said, lambda b=b: matmul(s, b.name, target))  # type: ignore[misc]
            done |= {x.name for x in blocks(s.program.body)} - before | ({b.name} if _is_scheduled(s, b.name) else set())
    for group in _groups(s.program, done):
        if len(group) > 1 or any(i.kind != "S" for b in group for i in b.iters):
            names = [b.name for b in group]
            _attempt(said, lambda names=names: schedule_rows(s, names, target))  # type: ignore[misc]
    for b in _untouched(s.program):
        _attempt(said, lambda b=b: schedule_elementwise(s, b.name, target))  # type: ignore[misc]
    rest = [b.name for b in _untouched(s.program)]
    if rest:
        said.append(schedule_anything(s, rest, target))
    return s.program.with_(attrs={**s.program.attrs, "scheduled": True}), "; ".join(said) or "nothing to schedule"


def _attempt(said: list[str], rule: object) -> None:
    try:
        said.append(rule())  # type: ignore[operator]
    except NotApplicable as reason:
        said.append(f"not otherwise because {reason}")


def _inline(s: Schedule) -> list[str]:
    """Compute elementwise producers where they are read, where each element is read once or costs next to nothing."""
    done: list[str] = []
    for b in blocks(s.program.body):
        store = elementwise(b)
        if store is None or allocation(s.program, store.buffer) is None:
            continue
        users = readers(s.program, store.buffer)
        if is_cheap(store.value) or (len(users) == 1 and reads_once(users[0], store)):
            try:
                s.compute_inline(b.name)
                done.append(f"`{b.name}`")
            except ScheduleError:
                continue
    return [f"inlined {', '.join(done)}"] if done else []


def _is_scheduled(s: Schedule, name: str) -> bool:
    from ..nest import loops_above

    return any(x.kind != "serial" for b in blocks(s.program.body) if b.name == name for x in loops_above(s.program, b))


def _untouched(func: Func) -> list[Block]:
    """The blocks around which all loops are serial still."""
    from ..nest import loops_above

    return [b for b in blocks(func.body) if all(x.kind == "serial" for x in loops_above(func, b))]


def _groups(func: Func, done: set[str]) -> list[list[Block]]:
    """Runs of neighbouring nests of one block each that no rule has taken yet."""
    groups: list[list[Block]] = [[]]
    for nest in root_nests(func):
        inside = blocks(nest)
        if len(inside) == 1 and inside[0].name not in done and inside[0] in _untouched(func):
            groups[-1].append(inside[0])
        else:
            groups.append([])
    return [g for g in groups if g]
