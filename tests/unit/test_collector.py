"""The collector during compilations."""

from __future__ import annotations

import gc
import threading

import pytest

from pliant.support.collector import fewer_collections


def test_the_collector_is_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="stop"), fewer_collections():
        inside = gc.get_threshold()
        with fewer_collections():
            assert gc.get_threshold() == inside
        assert inside[0] > before[0] and inside[1:] == before[1:]
        raise ValueError("stop")
    assert gc.get_threshold() == before


def test_a_collector_that_is_off_stays_off() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with fewer_collections():
            assert gc.get_threshold()[0] == 0
        assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


def test_two_threads_inside_at_once_leave_it_as_it_was() -> None:
    before, ends = gc.get_threshold(), threading.Event()

    def other() -> None:
        with fewer_collections():
            ends.wait()

    with fewer_collections():
        thread = threading.Thread(target=other)
        thread.start()
    ends.set()
    thread.join()
    assert gc.get_threshold() == before
