"""Records of tuning: which kernel one is about, what a compilation takes from it, and that none can do harm."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Out, Tensor, block, dim, f32, grid, init, kernel
from pliant.loop.stmt import Func
from pliant.runtime.executable import Executable
from pliant.schedule.records import FILE, CarriedRecords, KernelKey, Record, Records, kernel_key, nearest, parse
from pliant.support.errors import Error, ModelFileError
from pliant.target import target
from pliant.tune.database import Database, export_lines, read_lines
from tuning_kernels import matmul, own_cache

n, m = dim("n"), dim("m", 1, 512)
HERE = target("native")
a, b = np.random.default_rng(0).random((7, 16), np.float32), np.random.default_rng(1).random((16, 32), np.float32)


@kernel
def same_with_other_names(x: Tensor[f32, m, 16], w: Tensor[f32, 16, 32], y: Out[f32, m, 32]) -> None:
    for p, q, r in grid(m, 32, 16):
        with block("sum", "SSR", p, q, r) as (vp, vq, vr):
            with init():
                y[vp, vq] = 0.0
            y[vp, vq] += x[vp, vr] * w[vr, vq]


@kernel
def wider(a: Tensor[f32, n, 16], b: Tensor[f32, 16, 48], c: Out[f32, n, 48]) -> None:
    for i, j, k in grid(n, 48, 16):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


@kernel
def other(a: Tensor[f32, n, 16], b: Tensor[f32, 16, 32], c: Out[f32, n, 32]) -> None:
    for i, j, k in grid(n, 32, 16):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 1.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with own_cache(tmp_path), Database(tmp_path / FILE) as opened:
        yield opened


def record(func: Func, decisions: dict[str, Any], ratio: float = 0.9) -> Record:
    return Record(kernel_key(func, HERE), decisions, ratio, ({"n": 7},), 1e-5, func.name, HERE.name)


def taken(f: Executable) -> dict[str, str]:
    """The values of the decisions of the only kernel."""
    (rule,) = f.package.interface.rules
    return {c.name: c.value for c in rule.choices}


def test_the_key_is_the_form_of_a_kernel() -> None:
    key = kernel_key(matmul.func, HERE)
    assert kernel_key(same_with_other_names.func, HERE) == key, "names and ranges of dims do not count"
    assert kernel_key(wider.func, HERE).form == key.form and kernel_key(wider.func, HERE).sizes == (16, 48) != key.sizes == (16, 32)
    assert kernel_key(other.func, HERE).form != key.form
    assert kernel_key(matmul.func, target("llvm:x86-64-v2")).form != kernel_key(matmul.func, target("llvm:x86-64-v3")).form


def test_a_compilation_takes_a_record(database: Database) -> None:
    before = pliant.compile(matmul)
    assert taken(before)["c.tile"] != "2x1" and before.package.interface.rules[0].record == ""
    database.add_record(record(matmul.func, {"0.tile": (2, 1)}))
    after = pliant.compile(matmul)
    assert taken(after)["c.tile"] == "2x1" and parse(after.package.interface.rules[0].record).decisions == {"0.tile": (2, 1)}
    assert "tuned: 90 % of the default's time, measured at n = 7" in pliant.explain(after)
    assert np.array_equal(after(a, b), before(a, b))
    assert taken(pliant.compile(same_with_other_names))["sum.tile"] == "2x1", "blocks are found by their number"
    assert taken(pliant.compile(matmul, decisions={"c.tile": (3, 1)}))["c.tile"] == "3x1", "what a user asks for goes before it"


def test_records_can_be_left_out(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.add_record(record(matmul.func, {"0.tile": (2, 1)}))
    monkeypatch.setenv("PLIANT_DISABLE", "records")
    assert taken(pliant.compile(matmul))["c.tile"] != "2x1"


def test_cached_code_is_that_of_the_records_of_now(database: Database) -> None:
    def tile() -> str:
        return taken(pliant.compile(matmul))["c.tile"]

    default = tile()
    for decisions in ((2, 1), (3, 1)):
        database.clear()
        database.add_record(record(matmul.func, {"0.tile": decisions}))
        assert tile() == tile() == "x".join(map(str, decisions))
    database.clear()
    assert tile() == default


def test_cached_code_is_found_again(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.add_record(record(matmul.func, {"0.tile": (2, 1)}))
    pliant.compile(matmul)
    monkeypatch.setattr("pliant.pipeline.run_steps", lambda *_: pytest.fail("it was compiled again"))
    assert taken(pliant.compile(matmul))["c.tile"] == "2x1"


def test_the_nearest_sizes_serve_and_are_marked(database: Database) -> None:
    database.add_record(record(wider.func, {"0.tile": (2, 1)}))
    text = pliant.explain(pliant.compile(matmul))
    assert "c.tile = 2x1" in text and "(measured for sizes 16, 48)" in text
    database.add_record(record(matmul.func, {"0.tile": (3, 1)}))
    assert "c.tile = 3x1" in (text := pliant.explain(pliant.compile(matmul))) and "measured for sizes" not in text
    key = kernel_key(matmul.func, HERE)
    assert nearest(KernelKey(key.form, (16, 97)), [record(wider.func, {})]) is None, "more than twice the size is not near"


def test_values_are_repaired_and_other_decisions_dropped(database: Database) -> None:
    default = pliant.compile(matmul)
    forged: dict[str, Any] = {"0.tile": (900, 700), "0.unroll": "often", "7.tile": (1, 1), "0.nothing": 3, "c.tile": (1, 1), "0": 1}
    database.add_record(record(matmul.func, forged))
    f = pliant.compile(matmul)
    tiles = next(c for c in f.package.interface.rules[0].choices if c.name == "c.tile")
    assert tiles.value in tiles.domain or "more" in tiles.domain
    assert np.array_equal(f(a, b), default(a, b))


def test_a_record_does_not_change_bits(database: Database) -> None:
    @kernel
    def long_sum(x: Tensor[f32, n, 4096], y: Out[f32, n]) -> None:
        for i, k in grid(n, 4096):
            with block("y", "SR", i, k) as (vi, vk):
                with init():
                    y[vi] = 0.0
                y[vi] += x[vi, vk]

    before = pliant.compile(long_sum)
    reorders = {c.name.partition(".")[2]: c.value for c in before.package.interface.rules[0].choices if c.reorders}
    assert reorders, "there is something to guard"
    database.add_record(record(long_sum.func, {f"0.{what}": int(value) // 2 for what, value in reorders.items() if value.isdigit()}))
    after = pliant.compile(long_sum)
    assert after.package.interface.rules[0].record
    assert {k: v for k, v in taken(after).items() if k[2:] in reorders} == {f"y.{k}": v for k, v in reorders.items()}
    x = np.random.default_rng(2).random((3, 4096), np.float32)
    assert np.array_equal(after(x), before(x))


def test_files_carry_their_records(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database.add_record(record(matmul.func, {"0.tile": (2, 1)}))
    file = tmp_path / "m.pliant"
    pliant.compile(matmul).save(file)
    monkeypatch.setenv("PLIANT_CACHE", str(tmp_path / "elsewhere"))
    assert taken(pliant.load(file))["c.tile"] == "2x1"
    assert taken(pliant.load(file, recompile=True))["c.tile"] == "2x1"
    assert taken(pliant.compile(matmul))["c.tile"] != "2x1"
    with own_cache(tmp_path / "third"), Database(tmp_path / "third" / FILE) as third:
        third.add_record(record(matmul.func, {"0.tile": (3, 1)}))
        assert taken(pliant.load(file, recompile=True))["c.tile"] == "3x1", "the user's own go before them"


def test_lines_are_read_back_and_nonsense_is_refused(tmp_path: Path) -> None:
    good = record(matmul.func, {"0.tile": (2, 1), "0.inline": True, "0.order": "rows", "0.unroll": 4})
    assert parse(good.line()) == good
    data = json.loads(good.line())
    for name, value in (
        ("format", 99),
        ("form", "../../etc"),
        ("sizes", "16"),
        ("sizes", [1.5]),
        ("decisions", {"0.tile": [[1]]}),
        ("decisions", {"0.tile": None}),
        ("decisions", {f"{k}.tile": 1 for k in range(1000)}),
        ("ratio", -1),
        ("ratio", float("nan")),
        ("at", [{"n": "all"}]),
        ("kernel", "a\x1b[2Jb"),
    ):
        with pytest.raises(ModelFileError):
            parse(json.dumps({**data, name: value}))
    for text in ("", "[]", "null", "{", "[" * 30000, json.dumps({**data, "kernel": "x" * (1 << 17)})):
        with pytest.raises(ModelFileError):
            parse(text)
    file = tmp_path / "a.tune"
    file.write_bytes(export_lines([good]).encode() + b"\xff\xfe\nnothing\n" + b"x" * (1 << 18))
    with file.open("rb") as stream:
        found, refused = read_lines(stream)
    assert found == [good] and len(refused) == 3 and refused[0].startswith("line 2")
    with pytest.raises(ModelFileError):
        CarriedRecords(["nothing"])


def test_what_is_no_database_has_no_records(tmp_path: Path) -> None:
    key = kernel_key(matmul.func, HERE)
    assert not Records(tmp_path / "absent")
    for name, content in (("empty", b""), ("text", b"no database at all" * 100)):
        (tmp_path / name).write_bytes(content)
        assert not Records(tmp_path / name) and Records(tmp_path / name).find(key) is None
    newer = tmp_path / "newer"
    with Database(newer) as database:
        database.add_record(record(matmul.func, {"0.tile": (2, 1)}))
    assert Records(newer).find(key) is not None
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    assert not Records(newer)
    with pytest.raises(Error, match="another version"):
        Database(newer)
    with pytest.raises(Error, match="cannot be kept"):
        Database(tmp_path / "text")
    with pytest.raises(Error, match="cannot be kept"):
        Database(tmp_path / "text" / "inside")


def test_a_row_that_was_forged_is_no_record(database: Database) -> None:
    key = kernel_key(matmul.func, HERE)
    with sqlite3.connect(database.path) as connection:
        connection.execute("INSERT INTO records VALUES (?, '[16, 32]', 'drop it')", (key.form,))
        connection.execute("INSERT INTO records VALUES (?, '[16, 48]', ?)", (key.form, record(other.func, {}).line()))
    connection.close()
    assert Records(database.path).find(key) is None
    assert pliant.compile(matmul)(a, b).shape == (7, 32)


def test_ten_thousand_records_are_looked_up_at_once(database: Database) -> None:
    key = kernel_key(matmul.func, HERE)
    rows = [(f"{k:064x}", "[16, 32]", Record(KernelKey(f"{k:064x}", (16, 32)), {}, 0.5, (), 1.0).line()) for k in range(10_000)]
    with sqlite3.connect(database.path) as connection:
        connection.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
    connection.close()
    database.add_record(record(matmul.func, {"0.tile": (2, 1)}))

    def once() -> float:
        start = time.process_time()
        assert Records(database.path).find(key) is not None
        return time.process_time() - start

    assert min(once() for _ in range(5)) < 0.005


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser writes anywhere")
def test_a_folder_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    with Database(tmp_path / FILE) as database:
        database.add_record(record(matmul.func, {"0.tile": (2, 1)}))
    tmp_path.chmod(0o500)
    try:
        assert Records(tmp_path / FILE).find(kernel_key(matmul.func, HERE)) is not None
        with pytest.raises(Error, match="cannot be kept"):
            Database(tmp_path / "sub" / FILE)
    finally:
        tmp_path.chmod(0o700)


def test_without_lock_files_the_database_is_read_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the folder cannot be written: SQLite then opens a database with WAL only if it may not change."""
    with Database(tmp_path / FILE) as database:
        database.add_record(record(matmul.func, {"0.tile": (2, 1)}))
    connect = sqlite3.connect

    def locked(place: str, **options: Any) -> sqlite3.Connection:
        if "immutable" not in place:
            raise sqlite3.OperationalError("unable to open database file")
        return connect(place, **options)

    monkeypatch.setattr(sqlite3, "connect", locked)
    assert Records(tmp_path / FILE).find(kernel_key(matmul.func, HERE)) is not None
