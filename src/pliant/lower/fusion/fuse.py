"""Operator fusion: merges loop programs with the producers of what they read.

The loops decide what may fuse (`loop.analysis.nest_kind`), not the names of operators:
- Epilogue: elementwise consumers join the producer of one of their arguments (a matmul, a reduction, another elementwise program) if they
  read it at the very index that it writes.
- Prologue: an elementwise producer or a gather joins its consumer, unless the consumer is matmul-like and would recompute it for each tile.
- Updates: a scatter, a state update, or a program of no simpler kind computes an operand inline if it reads each element once.
- Decoded weights: a program that computes the right-hand side of a matmul from at most half as many bits joins the matmul, so the decoded
  weights are never in memory.
- Row fusion: reductions over the same rows join each other, with the programs between them (`lower.fusion.row_fusion`). So a norm written
  as several operators is one kernel.
- Exception: producers of other operands do not join a concat of matmul results, so that copy elision (`lower.host.copy_elision`) can write
  all of its parts in place.
- Sibling: the producer before a reduction may have other readers; its value is then a second result (`h = x + y; norm(h)`).
Two steps come first: `fold_data_movement` folds data movement into the loads and stores of templates, and `rematerialize` gives every
reader of a cheap value its own copy of the producer.

In all other cases the value between two programs must have no reader outside of the group. Except for row fusion, a group has at most one
program that is more than elementwise (its anchor). The merged call stands at the place of the last member, so readers of the group's
results must come after that.

    c = matmul(a, b); s = sigmoid(c); y = mul(c, s)      ->      y = matmul_sigmoid_mul(a, b)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from ...graph import node as g
from ...loop.analysis.block_kind import halves_bits
from ...loop.analysis.nest_kind import Kind, pattern_kind, reads_each_once, reads_elementwise, right_operand
from ...support.record import dataclass
from ...sym.expr import Expr, product
from ..callee import func_of
from ..host.copy_elision import ranges_at_1
from .merge import merge
from .node_lists import map_node_lists, may_join, users_of
from .rematerialize import CHEAP
from .row_fusion import Extents, has_rows, reads_by_rows, rows_of

PROLOGUES = (*CHEAP, Kind.GATHER)
ROW_BY_ROW = (Kind.ELEMENTWISE, Kind.BROADCAST, Kind.REDUCTION)


def fuse(function: g.Function) -> g.Function:
    """Returns the function with groups of its loop programs merged, also inside branches and loops."""
    return map_node_lists(function, _fuse_nodes)


def _fuse_nodes(nodes: Sequence[g.Node], results: Sequence[g.Value]) -> tuple[g.Node, ...]:
    groups = _Groups(nodes, results)
    for n in nodes:
        if isinstance(n, g.CallLoop):
            groups.join(n)
    return tuple(merged for n in nodes for merged in groups.emit(n))


@dataclass(slots=True, eq=False)
class _Group:
    """A fusion group: calls of loop programs that will be merged into one."""

    nodes: list[g.CallLoop]
    anchor: bool  # True if one of the programs is more than elementwise
    rows: Extents | None = None  # if all of those are reductions over the same rows: the extents of the rows


@dataclass(slots=True)
class _Groups:
    """The state of fusion over one list of nodes: the group that each call is in. A merged call replaces the last node of its group."""

    nodes: Sequence[g.Node]
    results: Sequence[g.Value]
    users: dict[g.Value, list[g.Node | None]] = field(default_factory=dict)
    maker: dict[g.Value, g.CallLoop] = field(default_factory=dict)
    group: dict[g.CallLoop, _Group] = field(default_factory=dict)
    kind: dict[g.CallLoop, Kind] = field(default_factory=dict)
    order: dict[g.Node | None, int] = field(default_factory=dict)
    side_by_side: dict[g.CallLoop, bool] = field(default_factory=dict)  # cache of `joins_products`

    def __post_init__(self) -> None:
        self.users = users_of(self.nodes, self.results)
        self.order = {n: i for i, n in enumerate(self.nodes)} | {None: len(self.nodes)}
        for n in self.nodes:
            if isinstance(n, g.CallLoop) and may_join(n):
                self.kind[n] = pattern_kind(func_of(n.callee))
                rows = rows_of(func_of(n.callee)) if self.kind[n] is Kind.REDUCTION else None
                self.group[n] = _Group([n], self.kind[n] not in PROLOGUES, rows)
                self.maker.update((out, n) for out in n.outs)
            elif isinstance(n, g.CallLoop) and updates_state(n):
                kind = pattern_kind(func_of(n.callee))  # the update keeps its place in the order; producers may join it
                self.kind[n] = kind if kind in (Kind.ELEMENTWISE, Kind.BROADCAST) else Kind.OPAQUE
                self.group[n] = _Group([n], self.kind[n] is Kind.OPAQUE)

    def join(self, n: g.CallLoop) -> None:
        """Merges the groups of the producers of a node's arguments into its own group, until no further producer may join.

        A node that is in no group is left alone.
        """
        while n in self.group and any(self.join_maker(n, v) for v in self.read_by(n)):
            pass

    def read_by(self, n: g.CallLoop) -> list[g.Value]:
        """Returns the values that a node reads; for a reduction, those of all members of its group."""
        members = self.group[n].nodes if self.kind[n] is Kind.REDUCTION else [n]
        return list(dict.fromkeys(a for m in members for a in m.args if isinstance(a, g.Value)))

    def join_maker(self, n: g.CallLoop, value: g.Value) -> bool:
        """Lets the producer of an argument join the node's group if that is legal; returns True if it joined."""
        producer = self.maker.get(value)
        if producer is None or len(producer.outs) != 1:
            return False
        mine, other = self.group[n], self.group[producer]
        inside = [u for u in self.users[value] if isinstance(u, g.CallLoop) and self.group.get(u) is mine]
        if mine is other:
            return False
        by_rows = self.by_rows(producer, value, mine, inside)
        if not by_rows and ((mine.anchor and other.anchor) or not self.fits(producer, value, n, inside)):
            return False
        if len(inside) < len(self.users[value]) and not by_rows and not self.may_be_sibling(producer, n):
            return False
        joined = _Group(other.nodes + mine.nodes, mine.anchor or other.anchor, other.rows if other.anchor else mine.rows)
        if not self.in_order(joined) or (by_rows and not self.leads_to(joined, mine)):
            return False
        self.group.update((member, joined) for member in joined.nodes)
        return True

    def fits(self, made: g.CallLoop, value: g.Value, n: g.CallLoop, inside: Sequence[g.CallLoop]) -> bool:
        """Returns True if the producer `made` of `value` can be fused with its reader `n`.

        `inside` are all its readers in the group of `n`. It depends on the kind of `n`: a matmul takes only what decodes its operand, an
        opaque or scatter program only what it reads once. Of other kinds, cheap programs and reductions take a producer that may be a
        prologue, or all of `inside` must be elementwise and read it so, if the group of the producer has an anchor.
        """
        if self.kind[n] is Kind.MATMUL:
            return not self.group[made].anchor and self.is_decoded(made, value, n)
        if self.kind[n] in (Kind.OPAQUE, Kind.SCATTER):
            return self.is_read_once(made, value, n)
        if self.kind[n] not in (*CHEAP, Kind.REDUCTION):
            return False
        if not self.group[made].anchor:
            return self.kind[made] in PROLOGUES and (not self.joins_products(n) or ranges_at_1(made) == 1)
        reads = [(u, p) for u in inside for p, a in enumerate(u.args) if a is value]
        places = all(reads_elementwise(func_of(u.callee), p) for u, p in reads)
        return places and all(self.kind[u] in (Kind.ELEMENTWISE, Kind.BROADCAST) for u, _ in reads)

    def joins_products(self, n: g.CallLoop) -> bool:
        """True if a node is a concat along a leading dim that only matmuls read and that has the result of an anchor among its operands."""
        if n not in self.side_by_side:
            makers = [self.maker.get(a) for a in n.args if isinstance(a, g.Value)]
            readers = [u for v in n.outs for u in self.users.get(v, [])]
            has_anchor = any(m is not None and self.group[m].anchor for m in makers)
            read = all(isinstance(u, g.CallLoop) and self.kind.get(u) is Kind.MATMUL for u in readers)
            self.side_by_side[n] = has_anchor and read and self.kind[n] is Kind.INJECTIVE and ranges_at_1(n) > 1
        return self.side_by_side[n]

    def by_rows(self, made: g.CallLoop, value: g.Value, mine: _Group, inside: Sequence[g.CallLoop]) -> bool:
        """True if a value comes from a group of row reductions and each of its readers in `inside` reads only its own row of it."""
        rows = self.group[made].rows
        if rows is None or (mine.anchor and mine.rows != rows) or not has_rows(value.tensor.shape, rows):
            return False
        if any(self.kind[u] not in ROW_BY_ROW for u in (made, *mine.nodes)):
            return False
        reads = [(u, p) for u in inside for p, a in enumerate(u.args) if a is value]
        return all(reads_by_rows(func_of(u.callee), p, rows) for u, p in reads)

    def is_decoded(self, made: g.CallLoop, value: g.Value, n: g.CallLoop) -> bool:
        """True if a value is the right-hand side of the matmul `n` and its sources have at most half as many bits."""
        members = self.group[made].nodes
        inner = {v for m in members for v in m.outs}
        sources = {a for m in members for a in m.args if isinstance(a, g.Value) and a not in inner}
        read = [_bits(a.annotation) for a in sources if isinstance(a.annotation, g.Tensor)]
        if any(self.kind[m] not in CHEAP for m in members) or not read or len(self.users[value]) != 1:
            return False
        return right_operand(func_of(n.callee), n.args.index(value)) and halves_bits(read, _bits(value.tensor))

    def is_read_once(self, made: g.CallLoop, value: g.Value, n: g.CallLoop) -> bool:
        """True if the producer is cheap and `n`, whatever its kind, reads each element of the value once."""
        places = [p for p, a in enumerate(n.args) if a is value]
        simple = self.kind[made] in PROLOGUES and not self.group[made].anchor
        return simple and len(places) == 1 and reads_each_once(func_of(n.callee), places[0])

    def may_be_sibling(self, made: g.CallLoop, n: g.CallLoop) -> bool:
        """True if the producer before a reduction may keep its value as a second result: both go over the same rows."""
        return self.kind[n] is Kind.REDUCTION and self.kind[made] is Kind.ELEMENTWISE and self.group[made].nodes[-1] is made

    def leads_to(self, group: _Group, last: _Group) -> bool:
        """True if each value of the group has a reader inside it, except those of `last`: rows are computed where they are read."""
        earlier = [v for m in group.nodes if m not in last.nodes for v in m.outs]
        return all(any(u in group.nodes for u in self.users.get(v, [])) for v in earlier)

    def in_order(self, group: _Group) -> bool:
        """True if every outside reader of a result of the group comes after its last member, where the merged call will stand."""
        members = set(group.nodes)
        last = max(self.order[m] for m in members)
        return all(self.order[u] > last for m in members for v in m.outs for u in self.users.get(v, []) if u not in members)

    def emit(self, n: g.Node) -> tuple[g.Node, ...]:
        """Returns the replacement of `n`: itself, nothing, or the merged call of the group that ends with it."""
        if not isinstance(n, g.CallLoop) or n not in self.group:
            return (n,)
        group = self.group[n]
        members = sorted(group.nodes, key=self.order.__getitem__)
        if members[-1] is not n:
            return ()
        if len(members) == 1:
            return (n,)
        wanted = [v for m in members for v in m.outs if m is n or any(u not in members for u in self.users.get(v, []))]
        return (merge(members, wanted),)


def _bits(t: g.Annotation) -> Expr:
    assert isinstance(t, g.Tensor)
    return product(t.shape) * t.dtype.bits


def updates_state(n: g.CallLoop) -> bool:
    """True if the only result of a call is the new version of a state, and the program has no schedule of its own."""
    return len(n.outs) == 1 and g.is_state(n.outs[0]) and not func_of(n.callee).attrs.scheduled
