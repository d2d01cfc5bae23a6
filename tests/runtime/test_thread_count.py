"""How many threads: argument > with > set_threads > PLIANT_NUM_THREADS > OMP_NUM_THREADS > quota and affinity."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Out, Tensor, dim, f32, function, kernel, ops, parallel
from pliant.runtime import threads
from pliant.runtime.threads import cgroup_quota, resolve_threads, set_threads
from pliant.support.errors import Error

n = dim("n")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("PLIANT_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    threads._given_by_system.cache_clear()
    yield
    set_threads(None)
    threads._given_by_system.cache_clear()


def test_each_rule_beats_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_threads()[1] in ("the processors this process may use", "the quota of the cgroup")
    monkeypatch.setenv("OMP_NUM_THREADS", "7,2")
    threads._given_by_system.cache_clear()
    assert resolve_threads() == (7, "OMP_NUM_THREADS")
    monkeypatch.setenv("PLIANT_NUM_THREADS", "6")
    threads._given_by_system.cache_clear()
    assert resolve_threads() == (6, "PLIANT_NUM_THREADS")
    set_threads(5)
    assert resolve_threads() == (5, "`pliant.set_threads(...)`")
    with threads.threads(4):
        assert resolve_threads() == (4, "`with pliant.threads(...)`")
        with threads.threads(3):
            assert resolve_threads()[0] == 3
        assert resolve_threads()[0] == 4
        assert resolve_threads(2) == (2, "the argument `threads`")
    assert resolve_threads()[0] == 5
    set_threads(None)
    assert resolve_threads()[0] == 6


def test_with_holds_for_its_own_python_thread_only() -> None:
    set_threads(3)
    seen = []
    with threads.threads(1):
        other = threading.Thread(target=lambda: seen.append(resolve_threads()[0]))
        other.start()
        other.join()
        assert (seen, resolve_threads()[0]) == ([3], 1)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "2"])
def test_a_count_that_is_none(bad: object) -> None:
    with pytest.raises(Error, match="expected a whole number of at least 1") as caught:
        set_threads(bad)  # type: ignore[arg-type]
    assert caught.value.where is not None and caught.value.where.file == __file__


@pytest.mark.parametrize("bad", ["zero", "0", "-3", "1.5"])
def test_a_bad_environment_is_named(monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    monkeypatch.setenv("PLIANT_NUM_THREADS", bad)
    with pytest.raises(Error, match=f"PLIANT_NUM_THREADS is `{bad}`"):
        resolve_threads()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_affinity_counts() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert resolve_threads()[0] == 1
    finally:
        os.sched_setaffinity(0, before)


def test_quota_of_version_2_is_the_smallest_on_the_way_up(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("0::/a/b\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "cpu.max").write_text("max 100000\n")
    assert cgroup_quota(tmp_path / "cgroup", tmp_path) is None
    (tmp_path / "a" / "cpu.max").write_text("150000 100000\n")
    assert cgroup_quota(tmp_path / "cgroup", tmp_path) == 1.5


def test_quota_of_version_1(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:memory:/x\n3:cpu,cpuacct:/job\n")
    (tmp_path / "cpu" / "job").mkdir(parents=True)
    (tmp_path / "cpu" / "job" / "cpu.cfs_quota_us").write_text("300000\n")
    (tmp_path / "cpu" / "job" / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cgroup_quota(tmp_path / "cgroup", tmp_path) == 3.0


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path / "cgroup", tmp_path) is None
    (tmp_path / "cgroup").write_text("nonsense\n\n0::/../..\n")
    assert cgroup_quota(tmp_path / "cgroup", tmp_path) is None


@kernel(scheduled=True)
def add_serial(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = x[i] + 1.0


@kernel(scheduled=True)
def add_parallel(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in parallel(n):
        y[i] = x[i] + 1.0


def plus_one(x: Any) -> Any:
    return x + 1


@function
def add_outside(x: Tensor[f32, n]) -> Tensor[f32, n]:
    return ops.call_host(plus_one, [x], out=Tensor[f32, n])


@pytest.mark.parametrize(("src", "may"), [(add_serial, False), (add_parallel, True), (add_outside, True)])
def test_threads_are_asked_for_by_programs_that_may_use_them(src: Any, may: bool) -> None:
    f = pliant.compile(src, cache=False)
    assert f.interface.parallel == may
    assert f(np.float32([1, 2, 3])).tolist() == [2, 3, 4]
