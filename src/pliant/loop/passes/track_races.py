"""Race detection in checked mode: stamps record which iteration touched an element, for concurrent loops not proved to be race-free.

    for i in parallel(n):                  for i in range(n):                                  # in order, so that races are seen
        y[at[i]] = x[i]             ->         check(y_writer[at[i]] < 0 or y_writer[at[i]] // P == i, "… depend on each other …")
                                               y[at[i]] = x[i]
                                               y_writer[at[i]] = i * P + 0                     # the iteration, and which statement

An iteration of a parallel loop must not touch what another one writes. Lanes of a vector loop run in lockstep: all lanes finish a
statement before the next statement starts. So a lane may touch what an earlier lane wrote, if the write is in an earlier statement.
"""

from __future__ import annotations

from ...dtype import i64
from ...support.record import dataclass
from ...sym.expr import Const, Eq, Expr, FloorDiv, FloorMod, Le, Lt, Max, Or, Select, Var
from ..buffer import Buffer
from ..stmt import Alloc, For, Stmt, Store, While, walk_stmts, zero
from .written import Track

STATEMENTS = 65536  # a stamp is iteration * STATEMENTS + statement; loop bodies have fewer statements than this
NOBODY, SEVERAL = Const(-1, i64), Const(-2, i64)  # stamps of elements that no iteration, or more than one, has touched


@dataclass(frozen=True, slots=True)
class Race:
    """The race detection of one loop: buffers of stamps that hold, for each element, the last iteration that wrote and that read it."""

    loop: For
    writers: dict[Buffer, Buffer]
    readers: dict[Buffer, Buffer]

    @property
    def in_step(self) -> bool:
        """True if statement order implies lane order (lockstep); not with a loop inside, because it returns to earlier statements."""
        return self.loop.kind == "vector" and not any(isinstance(s, (For, While)) for s in walk_stmts(self.loop.body))

    @property
    def lane(self) -> Expr:
        """The number of the current iteration, counted from 0, as an expression."""
        return self.loop.var - self.loop.start

    def shown(self, stamp: Expr) -> Expr:
        """Returns the value that the loop's variable had in the iteration that left a stamp."""
        return FloorDiv(stamp, Const(STATEMENTS, i64)) + self.loop.start

    def may_follow(self, stamp: Expr, now: int) -> Expr:
        """The condition that statement `now` of this iteration may touch an element whose writer left that stamp."""
        mine = Or(Lt(stamp, zero()), Eq(FloorDiv(stamp, Const(STATEMENTS, i64)), self.lane))
        if not self.in_step:
            return mine
        return Or(mine, Lt(FloorMod(stamp, Const(STATEMENTS, i64)), Const(now, i64)))

    def may_overwrite(self, mark: Expr, now: int) -> Expr:
        """The condition that statement `now` of this iteration may write an element whose readers left that mark."""
        if self.in_step:
            return Le(mark, Const(now, i64))
        return Or(Eq(mark, NOBODY), Eq(mark, self.lane))

    def wrote(self, place: Expr, root: Buffer, now: int) -> Stmt:
        """Returns the statement that records a write in the stamps of its element."""
        return Store(self.writers[root], (place,), self.lane * STATEMENTS + now)

    def read(self, place: Expr, root: Buffer, now: int) -> Stmt:
        """The statement that records a read: by which iteration, or for lanes in lockstep by which statement at the latest."""
        mark = self.readers[root].load(place)
        if self.in_step:
            return Store(self.readers[root], (place,), Max(mark, Const(now, i64)))
        return Store(self.readers[root], (place,), Select(self.may_overwrite(mark, now), self.lane, SEVERAL))


def new_race(loop: For, tracks: list[Track]) -> tuple[Race, list[Stmt]]:
    """Returns the race detection of a loop, and the statements that allocate and clear its stamps."""
    setup: list[Stmt] = []
    writers: dict[Buffer, Buffer] = {}
    readers: dict[Buffer, Buffer] = {}
    for t in tracks:
        scope = "stack" if t.root.scope == "stack" else "workspace"
        for stamps, what in ((writers, "writer"), (readers, "reader")):
            stamps[t.root] = b = Buffer(f"{t.root.name}_{what}", i64, (t.size(),), scope=scope)  # type: ignore[arg-type]
            at = Var("at", i64)
            setup += [Alloc(b), For(at, zero(), b.shape[0], "serial", Store(b, (at,), NOBODY))]
    return Race(loop, writers, readers), setup
