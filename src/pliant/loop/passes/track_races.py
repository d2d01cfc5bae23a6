"""Which iteration touched an element: stamps that programs with checks keep, where a concurrent loop is not shown to have no races.

    for i in parallel(n):                  for i in range(n):                                  # one after the other, to be seen
        y[at[i]] = x[i]             ->         check(y_writer[at[i]] < 0 or y_writer[at[i]] // P == i, "… depend on each other …")
                                               y[at[i]] = x[i]
                                               y_writer[at[i]] = i * P + 0                     # the iteration, and which statement

Iterations of a parallel loop may not touch what another one writes. Lanes of a vector loop may, where all lanes of a statement being done
before the next one starts keeps the order: what an earlier lane wrote is read by a later statement only, and written again by a later one.
"""

from __future__ import annotations

from ...dtype import i64
from ...support.record import dataclass
from ...sym.expr import Const, Eq, Expr, FloorDiv, FloorMod, Le, Lt, Max, Or, Select, Var
from ..buffer import Buffer
from ..stmt import Alloc, For, Stmt, Store, While, walk_stmts, zero
from .written import Track

STATEMENTS = 65536  # more than a loop's body has
NOBODY, SEVERAL = Const(-1, i64), Const(-2, i64)


@dataclass(frozen=True, slots=True)
class Race:
    """A loop whose accesses are followed, and for each memory the stamps of who wrote and who read."""

    loop: For
    writers: dict[Buffer, Buffer]
    readers: dict[Buffer, Buffer]

    @property
    def in_step(self) -> bool:
        """Whether the order of statements tells the order of lanes: a loop inside goes back to statements that were done."""
        return self.loop.kind == "vector" and not any(isinstance(s, (For, While)) for s in walk_stmts(self.loop.body))

    @property
    def lane(self) -> Expr:
        """The number of the iteration, from 0 on."""
        return self.loop.var - self.loop.start

    def shown(self, stamp: Expr) -> Expr:
        """The loop variable of the iteration that left a stamp."""
        return FloorDiv(stamp, Const(STATEMENTS, i64)) + self.loop.start

    def may_follow(self, stamp: Expr, now: int) -> Expr:
        """Whether statement `now` of this iteration may touch what was written with that stamp."""
        mine = Or(Lt(stamp, zero()), Eq(FloorDiv(stamp, Const(STATEMENTS, i64)), self.lane))
        if not self.in_step:
            return mine
        return Or(mine, Lt(FloorMod(stamp, Const(STATEMENTS, i64)), Const(now, i64)))

    def may_overwrite(self, mark: Expr, now: int) -> Expr:
        """Whether statement `now` of this iteration may write what was read with that mark."""
        if self.in_step:
            return Le(mark, Const(now, i64))
        return Or(Eq(mark, NOBODY), Eq(mark, self.lane))

    def wrote(self, place: Expr, root: Buffer, now: int) -> Stmt:
        """Notes a write."""
        return Store(self.writers[root], (place,), self.lane * STATEMENTS + now)

    def read(self, place: Expr, root: Buffer, now: int) -> Stmt:
        """Notes a read: of a parallel loop who it was, of lanes the last statement."""
        mark = self.readers[root].load(place)
        if self.in_step:
            return Store(self.readers[root], (place,), Max(mark, Const(now, i64)))
        return Store(self.readers[root], (place,), Select(self.may_overwrite(mark, now), self.lane, SEVERAL))


def new_race(loop: For, tracks: list[Track]) -> tuple[Race, list[Stmt]]:
    """What follows a loop, and the statements that say that nobody has touched anything."""
    made: list[Stmt] = []
    writers: dict[Buffer, Buffer] = {}
    readers: dict[Buffer, Buffer] = {}
    for t in tracks:
        scope = "stack" if t.root.scope == "stack" else "workspace"
        for stamps, what in ((writers, "writer"), (readers, "reader")):
            stamps[t.root] = b = Buffer(f"{t.root.name}_{what}", i64, (t.size(),), scope=scope)  # type: ignore[arg-type]
            at = Var("at", i64)
            made += [Alloc(b), For(at, zero(), b.shape[0], "serial", Store(b, (at,), NOBODY))]
    return Race(loop, writers, readers), made
