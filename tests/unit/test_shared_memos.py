"""Expressions are shared by all threads: their memos are created once, and what a proof under way assumes stays in its thread."""

from __future__ import annotations

import sys
import threading

from pliant.sym.expr import Const, Expr, Var
from pliant.sym.facts import EMPTY
from pliant.sym.walk import fold_up


def test_two_threads_fold_the_same_expressions() -> None:
    """Each thread finds its own results although the other one creates memos of the same nodes."""
    v = Var("v")
    nodes: list[Expr] = [v * Const(k, v.dtype) + k for k in range(2, 20_000)]
    wrong: list[object] = []

    def run(name: str) -> None:
        try:
            for e in nodes:
                if fold_up(e, name, lambda node, below: name) != name:
                    wrong.append(e)
        except KeyError as error:
            wrong.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run, args=(name,)) for name in ("one", "two", "three")]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def test_facts_of_one_thread_are_not_those_of_another() -> None:
    v = Var("v")
    here = EMPTY.with_loop(v, 8)
    there: list[object] = []
    thread = threading.Thread(target=lambda: there.append(EMPTY.with_loop(v, 8)))
    thread.start()
    thread.join()
    assert there[0] is not here and EMPTY.with_loop(v, 8) is here
    EMPTY.cache("prove").put("claim", False)
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.append(EMPTY.cache("prove").get("claim")))
    thread.start()
    thread.join()
    EMPTY.forget()
    assert seen == [None]
