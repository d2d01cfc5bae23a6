"""Programs with wrong claims: each is refused by the verifier, found by checked mode while it runs, or right all the same.

A random kernel gets one random mistake: an iterator of another kind, an index moved, a dimension written by no iterator, a loop that is too
long, or one that claims lanes or threads. What the verifier lets pass must then mean one thing: interpreted in order, in shuffled
order, and as native code. Errors are designed ones: never an internal error, never one of Python.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from counts import seeds
from generate_kernels import make_kernel
from generate_loops import clone
from native_loops import Lifted, same_bits
from pliant.interp.loop import run_loop
from pliant.loop.buffer import Load
from pliant.loop.passes.add_checks import add_checks
from pliant.loop.printer import print_func
from pliant.loop.stmt import Block, For, Func, Iter, Param, Reduce, Stmt, Store, map_children, walk_stmts
from pliant.loop.verify import verify_written
from pliant.support.errors import Error, InternalError
from pliant.sym.expr import Const, Expr
from schedule_checks import DIMS, compilable, fits
from schedule_kernels import make_arguments

BATCH = 20


class Mistake:
    """One random change of a program."""

    def __init__(self, func: Func, seed: int) -> None:
        self.random = random.Random(f"mistake {seed}")
        self.func = func
        self.what = ""

    def make(self) -> Func | None:
        """The changed program; None where there is nothing of that kind to change."""
        changes = [self.kind_of_iterator, self.kind_of_iterator, self.moved_index, self.fixed_index, self.long_loop, self.kind_of_loop]
        return self.random.choice([*changes, self.kind_of_loop, self.neighbor, self.no_predicate])()

    def pick(self, kind: Any) -> Any:
        found = [s for s in walk_stmts(self.func.body) if isinstance(s, kind)]
        return self.random.choice(found) if found else None

    def replaced(self, old: Stmt, new: Stmt) -> Func:
        def change(s: Stmt) -> Stmt:
            return new if s is old else map_children(s, change)

        return self.func.with_(body=change(self.func.body))

    def kind_of_iterator(self) -> Func | None:
        """An iterator that is not what it says."""
        b = self.pick(Block)
        if b is None or not b.iters:
            return None
        n = self.random.randrange(len(b.iters))
        old = b.iters[n]
        kind = self.random.choice([k for k in "SRO" if k != old.kind])
        self.what = f"iterator {old.var.name} of {b.name} is {kind}"
        return self.replaced(b, b.with_(iters=tuple(Iter(i.var, kind if k == n else i.kind, i.value) for k, i in enumerate(b.iters))))

    def moved(self, indices: tuple[Expr, ...], by: int) -> tuple[Expr, ...]:
        n = self.random.randrange(len(indices))
        return tuple(e + by if k == n else e for k, e in enumerate(indices))

    def moved_index(self) -> Func | None:
        """A store to the neighbor of an element."""
        s = self.pick(Store)
        if s is None or not s.indices:
            return None
        by = self.random.choice([1, -1])
        self.what = f"{s.buffer.name} is stored {by} further"
        return self.replaced(s, s.with_(indices=self.moved(s.indices, by)))

    def fixed_index(self) -> Func | None:
        """Instances that write one element."""
        s = self.pick((Store, Reduce))
        indices = None if s is None else s.indices if isinstance(s, Store) else s.targets[0].indices
        if not indices or (isinstance(s, Reduce) and len(s.targets) != 1):
            return None
        n = self.random.randrange(len(indices))
        fixed = tuple(Const(0, e.dtype) if k == n else e for k, e in enumerate(indices))
        self.what = f"index {n} is always 0"
        new = s.with_(indices=fixed) if isinstance(s, Store) else s.with_(targets=(Load(s.targets[0].buffer, fixed),))
        return self.replaced(s, new)

    def neighbor(self) -> Func | None:
        """A store that reads what another instance writes."""
        s = self.pick(Store)
        if s is None or not s.indices or s.value.dtype.name == "bool" or s.buffer.dtype.storage:
            return None
        self.what = f"{s.buffer.name} reads its neighbor"
        return self.replaced(s, s.with_(value=s.value + Load(s.buffer, self.moved(s.indices, self.random.choice([1, -1, 0])))))

    def long_loop(self) -> Func | None:
        """An iteration too many, at one of the ends."""
        s = self.pick(For)
        if s is None:
            return None
        self.what = f"loop {s.var.name} is too long"
        return self.replaced(s, s.with_(stop=s.stop + 1) if self.random.random() < 0.7 else s.with_(start=s.start - 1))

    def kind_of_loop(self) -> Func | None:
        """A loop that claims lanes or threads."""
        s = self.pick(For)
        if s is None:
            return None
        kind = self.random.choice(["vector", "parallel", "parallel", "unroll"])
        self.what = f"loop {s.var.name} is {kind}"
        return self.replaced(s, s.with_(kind=kind))

    def no_predicate(self) -> Func | None:
        """A block that runs everywhere."""
        b = self.pick(Block)
        self.what = "no predicate"
        return None if b is None else self.replaced(b, b.with_(predicate=Const(True, b.predicate.dtype)))


def runs(func: Func, arguments: list[Any], dims: list[int], **options: Any) -> list[Any] | None:
    """What a program leaves in its arguments; None where checked mode refuses to go on."""
    mine = [clone(a) for a in arguments]
    try:
        run_loop(func, mine, dims, **options)
    except InternalError:
        raise
    except Error:
        return None
    return mine


def accepted(seed: int) -> tuple[Func, str] | None:
    """A program with a mistake that the verifier let pass; None where it did not."""
    mistake = Mistake(make_kernel(seed), seed)
    func = mistake.make()
    if func is None:
        return None
    # What an output holds that is not written is not defined; what a state holds is.
    func = func.with_(params=tuple(Param(p.value, "inout" if p.role == "out" else p.role) for p in func.params))
    try:
        verify_written(func)
        return compilable(func.with_(name=f"p{seed}")), mistake.what
    except InternalError:
        raise
    except Error as error:
        assert error.what and str(error)
        return None


@pytest.mark.parametrize("first", seeds(200, 20_000, BATCH))
def test_a_wrong_claim_is_refused_or_right(first: int) -> None:
    made = {seed: found for seed in range(first, first + BATCH) if (found := accepted(seed)) is not None}
    if not made:
        return
    native = Lifted([func for func, _ in made.values()], level=0)
    for seed, (func, what) in made.items():
        rng = random.Random(seed)
        for n in range(2):
            dims = {v.name: rng.choice([d for d in DIMS if fits(v, d)]) for v in func.symbols}
            arguments, order = make_arguments(func, dims, seed * 2 + n), [dims[v.name] for v in func.symbols]
            expected = runs(func, arguments, order)
            shuffled = runs(func, arguments, order, order="shuffled", seed=seed)
            if expected is None or shuffled is None:
                continue
            mine = [clone(a) for a in arguments]
            assert native.call(func, mine, order, 2) == 0
            for kind, found in (("shuffled", shuffled), ("native", mine)):
                same = all(same_bits(a, b) for a, b in zip(expected, found, strict=True))
                if not same and runs(add_checks(func), arguments, order) is None:
                    continue  # it depends on data, and checked mode says so
                assert same, f"seed {seed}, {what}: {kind} differs for {dims}\n{print_func(func)}"
