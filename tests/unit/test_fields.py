"""Field names in hand-written LLVM IR: offsets and sizes are those of ctypes, and the runtime's files contain no numbers in their place."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

import pliant.runtime
from pliant.codegen.fields import with_fields
from pliant.codegen.native_code import native_text

NATIVE = Path(pliant.runtime.__file__ or "").with_name("native")


class Inner(ctypes.Structure):
    _fields_ = [("a", ctypes.c_int32), ("b", ctypes.c_int64)]


class Outer(ctypes.Structure):
    _fields_ = [("first", ctypes.c_int64), ("inner", Inner), ("many", Inner * 3)]


RECORDS: dict[str, type[ctypes.Structure]] = {"Inner": Inner, "Outer": Outer}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  %x = field i64 %p, Outer.inner.b", "  %x.at = getelementptr i8, ptr %p, i64 16\n  %x = load i64, ptr %x.at"),
        ("  %x = addressof %p, Outer.many", "  %x = getelementptr i8, ptr %p, i64 24"),
        ("mul i64 %i, $sizeof(Inner)", "mul i64 %i, 16"),
        ("add i64 %i, $offsetof(Outer.many)", "add i64 %i, 24"),
        ("[$sizeof(Outer.many) x i8]", "[48 x i8]"),
        ("call $cc i32 $ask(i64 $Kind.ONE)", "call win64cc i32 @ask(i64 7)"),
    ],
)
def test_names_become_numbers(before: str, after: str) -> None:
    assert with_fields(before, RECORDS, {"cc": "win64cc", "ask": "@ask", "Kind.ONE": 7}) == after


@pytest.mark.parametrize("text", ["%x = field i64 %p, Outer.third", "%x = addressof %p, Other.a", "add i64 0, $Kind.TWO"])
def test_an_unknown_name_is_refused(text: str) -> None:
    with pytest.raises((KeyError, AttributeError)):
        with_fields(text, RECORDS, {})


def test_every_name_of_the_native_files_is_replaced() -> None:
    text = native_text("x86_64", windows=True)
    assert not re.search(r"^[^;]*(\$| field | addressof )", text, re.MULTILINE)


def test_native_files_have_no_offsets_in_numbers() -> None:
    for file in sorted(NATIVE.glob("*.ll")):
        for line in file.read_text(encoding="utf-8").splitlines():
            assert not re.search(r"getelementptr i8, ptr %[\w.]+, i64 \d", line), f"{file.name}: {line}"
