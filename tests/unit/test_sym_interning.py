"""Interning: equal means the same object, in threads too, and what nobody holds leaves the table without a finalizer."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import pytest

from pliant.dtype import i64
from pliant.sym import hash_consing
from pliant.sym.expr import Expr, Var


def chain(x: Expr, length: int) -> Expr:
    for i in range(length):
        x = x * 3 + i
    return x


def test_what_nobody_holds_is_swept_in_one_walk() -> None:
    x = Var("x", i64)
    gc.collect()
    hash_consing._sweep()
    kept = chain(x, 10)
    before = len(hash_consing._table)
    dropped = weakref.ref(chain(x, 500))
    assert dropped() is None and len(hash_consing._table) >= before + 980
    hash_consing._sweep()
    assert len(hash_consing._table) <= before
    assert chain(x, 10) is kept


def test_the_table_does_not_grow_with_what_was_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a table of its own: how full the process's one is, and how long walks over it take, is the other tests' doing."""
    room = 64
    for name, value in (("_FEW", room), ("_room", room), ("_table", {})):
        monkeypatch.setattr(hash_consing, name, value)
    x = Var("x", i64)
    kept = [x + i for i in range(200)]
    grown = 2 * len(hash_consing._table)
    for i in range(3 * grown):
        _ = x + (1_000_000 + i)
        assert len(hash_consing._table) <= hash_consing._room + 2
    assert room < hash_consing._room <= 2 * grown
    del kept
    for i in range(3 * grown):
        _ = x + (2_000_000 + i)
        assert len(hash_consing._table) <= hash_consing._room + 2
    assert hash_consing._room <= room


def test_an_interrupt_is_not_lost_in_a_finalizer() -> None:
    kinds = [Expr]
    for kind in kinds:
        assert not hasattr(kind, "__del__")
        kinds += kind.__subclasses__()
    assert len(kinds) > 30


def test_threads_agree_on_what_is_the_same() -> None:
    x = Var("x", i64)
    rounds, count = 40, 4
    barrier = threading.Barrier(count)
    made: list[list[Expr]] = [[] for _ in range(count)]

    def work(mine: list[Expr]) -> None:
        for i in range(rounds):
            barrier.wait()
            mine.append(chain(x + i, 50))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert all(len({id(m[i]) for m in made}) == 1 for i in range(rounds))
