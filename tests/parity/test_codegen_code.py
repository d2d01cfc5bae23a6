"""What the generated machine code looks like where that matters: tiles in registers, names, chunks of parallel loops."""

from __future__ import annotations

import dataclasses
import re

import pytest
from test_codegen_stmts import func, loop

from pliant.codegen.emit import emit_assembly, emit_object
from pliant.codegen.link_elf import undefined_symbols
from pliant.codegen.llvm import generate
from pliant.dtype import f32
from pliant.loop.analysis.iteration_cost import iteration_cost
from pliant.loop.buffer import Buffer
from pliant.loop.stmt import NAMED_COMBINERS, Alloc, Func, Reduce, Seq, Store
from pliant.sym.expr import Fma, Lt, Select, Var, const
from pliant.target import target

i, j, k, n, m = (Var(name) for name in "ijknm")


def tile(rows: int, columns: int) -> Func:
    """c[rows, columns] = a @ b, accumulated in registers."""
    a, b = Buffer("a", f32, (const(rows), n)), Buffer("b", f32, (n, const(columns)))
    c = Buffer("c", f32, (const(rows), const(columns)))
    acc = Buffer("acc", f32, (const(rows), const(columns)), scope="register")

    def over(store: Store) -> object:
        return loop(i, rows, loop(j, columns, store, "vector"), "unroll")

    step = over(Store(acc, (i, j), Fma(a.load(i, k), b.load(k, j), acc.load(i, j))))
    body = (Alloc(acc), over(Store(acc, (i, j), const(0.0, f32))), loop(k, n, step), over(Store(c, (i, j), acc.load(i, j))))
    return func(Seq(body), a, b, out=(c,))


@pytest.mark.parametrize(("rows", "columns"), [(6, 16), (4, 24), (5, 16), (1, 64)])
def test_a_tile_stays_in_registers(rows: int, columns: int) -> None:
    """One iteration is the loads of b, the broadcasts of a and the multiply-adds, with no access to the stack."""
    machine = target("llvm:x86-64-v3")
    text = emit_assembly(generate([tile(rows, columns)], machine).text, machine)
    products = rows * columns // 8
    loops = [block for block in re.split(r"^\.LBB\w+:", text, flags=re.MULTILINE) if "vfmadd" in block]
    assert len(loops) == 1
    code = loops[0].split("\tj", 1)[0]
    assert code.count("vfmadd") == products
    assert code.count("vbroadcastss") <= rows
    assert "rsp" not in code and "rbp" not in code
    reads = len(re.findall(r"^\tv\w+\t.*\(%r", code, flags=re.MULTILINE))
    assert reads == rows + columns // 8


def test_no_instruction_is_wider_than_the_target_says() -> None:
    machine = target("llvm:x86-64-v4")
    text = emit_assembly(generate([tile(6, 16)], machine).text, machine)
    assert ("zmm" in text) == (machine.vector_bits == 512)


def test_cost_grows_with_the_extents_inside() -> None:
    x, y = Buffer("x", f32, (n, m)), Buffer("y", f32, (n,))
    body = loop(k, m, Reduce(NAMED_COMBINERS["add"], (y.load(i),), (x.load(i, k),)))
    terms = iteration_cost(loop(i, n, body, "parallel"), 8)
    assert [extents for _, extents in terms] == [(m,)] or [extents for _, extents in terms if extents] == [(m,)]
    triangle = iteration_cost(loop(i, n, loop(k, i, body.body), "parallel"), 8)
    assert [str(e) for _, extents in triangle for e in extents] == ["n // 2"]


def test_text_is_the_same_every_time() -> None:
    machine = target("llvm:x86-64-v3")
    assert generate([tile(6, 16)], machine).text == generate([tile(6, 16)], machine).text


def test_windows_convention_is_only_at_the_border() -> None:
    """Exported functions and what the pool calls follow the system's convention; calls inside of the blob do not care."""
    y = Buffer("y", f32, (n,))
    machine = dataclasses.replace(target("llvm:x86-64-v3"), call_conv="win64cc")
    text = generate([func(loop(i, n, Store(y, (i,), const(0.0, f32)), "parallel"), out=(y,))], machine).text
    marked = {line.split("(")[0].split()[-1] for line in text.splitlines() if line.startswith("define") and "win64cc" in line}
    assert marked == {'@"f"', '@"f_i"'}
    assert len(re.findall(r"call win64cc i32 %", text)) == 1
    assert undefined_symbols(emit_object(text, machine)) == []


@pytest.mark.parametrize("kind", ["serial", "vector"])
def test_a_select_branches_only_where_it_must(kind: str) -> None:
    """An arm that is proven to be in range is simply read."""
    x, y = Buffer("x", f32, (n,)), Buffer("y", f32, (n,))
    half = const(0.5, f32)
    safe = Select(Lt(x.load(i), half), x.load(i), half)
    risky = Select(Lt(i, n - 1), x.load(i + 1), half)
    for value, branches in ((safe, False), (risky, True)):
        text = generate([func(loop(i, n, Store(y, (i,), value), kind), x, out=(y,))], target("llvm:x86-64-v3")).text
        assert ("take" in text) == branches
