"""Parses the LLVM form of a tensor instruction: the lines of LLVM IR that it is emitted as.

    <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> {c}, <64 x i8> {a}, <64 x i8> {b})

A form is one call of an intrinsic, or several lines of LLVM IR; each but the last names a value:

    %low = shufflevector <16 x i8> {a}, <16 x i8> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
    %wide = sext <8 x i8> %low to <8 x i16>
    call <4 x i32> @llvm.x86.sse2.pmadd.wd(<8 x i16> %wide, <8 x i16> {b})

`{a}` is a vector of all elements of the parameter `a`, in memory order. The type in front is what the instruction takes: a type of as many
bits as the operand is a bitcast, one of twice or four times as many is the operand repeated. The last line is the new value of
the parameter that is written. Floats are exact everywhere in Pliant, so fast-math flags are refused. Loads and stores are emitted around
the form, never in it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..support.errors import Error

_TYPE = r"(?:<\d+ x \w+>|[a-z]\w*)"
_OPERAND = re.compile(rf"(?:({_TYPE}) )?\{{(\w+)\}}")
_CALL = re.compile(rf"\bcall ({_TYPE}) @([\w.]+)\((.*)\)$")
_BARE = re.compile(rf"^({_TYPE}) @(llvm\.[\w.]+)\(")
_LOCAL = re.compile(r"%([A-Za-z_][\w.]*)")
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
_WORDS = (
    "add sub mul shl lshr ashr and or xor fadd fsub fmul fneg icmp fcmp select call bitcast trunc zext sext fptrunc fpext "
    "fptosi fptoui sitofp uitofp shufflevector insertelement extractelement"
)
_FAST = {"fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc"}
_HELP = 'for example "<4 x i32> @llvm.aarch64.neon.sdot.v4i32.v16i8(<4 x i32> {c}, <16 x i8> {a}, <16 x i8> {b})"'


class FormLine(NamedTuple):
    """A line of a user's LLVM form of an instruction: the name of its value ("" in the last line), and the LLVM instruction."""

    name: str
    text: str


class FormCall(NamedTuple):
    """The intrinsic that a line of an LLVM form calls: its name, its result type, and the types of its arguments."""

    name: str
    result: str
    arguments: str  # types


def lines_of(form: str) -> list[FormLine]:
    """Parse a user's LLVM form of an instruction into lines; raises an Error that says what is wrong with a line."""
    texts = [t.strip() for t in form.strip().splitlines() if t.strip()]
    if not texts:
        raise Error("an LLVM form has at least one line", help=_HELP)
    lines: list[FormLine] = []
    for number, text in enumerate(texts):
        name, equals, rest = text.partition(" = ")
        if bool(equals) != (number < len(texts) - 1):
            what = "the last line of an LLVM form is the result, and names no value" if equals else "a line of an LLVM form names no value"
            raise Error(what, facts=[f"line {number + 1}: {text}"], help="every line but the last is `%name = …`")
        if equals and (_LOCAL.fullmatch(name) is None or any(name[1:] == x.name for x in lines)):
            raise Error("an LLVM form names a value anew, or not by `%name`", facts=[f"line {number + 1}: {text}"])
        text = rest if equals else text
        lines.append(FormLine(name[1:] if equals else "", f"call {text}" if _BARE.match(text) else text))
        _check(lines[-1].text, number + 1, [x.name for x in lines[:-1]])
    return lines


def _check(text: str, number: int, known: list[str]) -> None:
    word, fact = text.split(" ")[0], [f"line {number}: {text}"]
    if word not in _WORDS.split():
        raise Error(f"`{word}` may not stand in an LLVM form", facts=fact, help=f"these may: {_WORDS}")
    call = call_of(text)
    if word == "call" and (call is None or not call.name.startswith("llvm.")):
        raise Error("an LLVM form calls only LLVM's intrinsics, as `call type @llvm.name(type value, …)`", facts=fact, help=_HELP)
    fast = next((w for w in re.findall(r"\w+", text) if w in _FAST), None)
    if fast is not None:
        raise Error(f"an LLVM form has the fast-math flag `{fast}`, but floats are exact", facts=fact)
    unknown = next((n for n in _LOCAL.findall(text) if n not in known), None)
    if unknown is not None:
        raise Error(f"no line of the LLVM form names `%{unknown}` before", facts=fact)


def call_of(text: str) -> FormCall | None:
    """Return the intrinsic that an instruction calls, or None."""
    match = _CALL.search(text)
    if match is None:
        return None
    arguments = [_type_of(a) for a in _separate(match[3])]
    return FormCall(match[2], match[1], ", ".join(arguments))


def _type_of(argument: str) -> str:
    match = re.match(_TYPE, argument)
    return match[0] if match is not None else argument.split(" ")[0]


def _separate(text: str) -> list[str]:
    """Split the arguments of a call at commas outside of brackets."""
    parts, depth = [""], 0
    for ch in text:
        depth += (ch in "<({[") - (ch in ">)}]")
        if ch == "," and not depth:
            parts.append("")
        else:
            parts[-1] += ch
    return [p.strip() for p in parts if p.strip()]


def operands_in(text: str) -> list[tuple[str, str]]:
    """Return the parameters that a line uses, each with the type in front of it ("" if there is none)."""
    return [(name, type_name or "") for type_name, name in _OPERAND.findall(text)]


def substituted(text: str, operands: dict[tuple[str, str], str], values: dict[str, str]) -> str:
    """Return a line with registers in place of its parameters and of the values of earlier lines."""
    text = _LOCAL.sub(lambda m: values[m[1]], text)

    def register(m: re.Match[str]) -> str:
        type_name = m[1] or ""
        return f"{type_name} {operands[m[2], type_name]}".strip()

    return _OPERAND.sub(register, text)


def bits_of(type_name: str) -> int | None:
    """Return the size of an LLVM type in bits, or None if it is unknown."""
    match = re.fullmatch(r"<(\d+) x (\w+)>", type_name)
    if match is not None:
        element = bits_of(match[2])
        return None if element is None else int(match[1]) * element
    return int(type_name[1:]) if re.fullmatch(r"i\d+", type_name) else _BITS.get(type_name)


def widest(text: str) -> int:
    """Return the size of the widest vector type in a line, in bits."""
    return max((bits_of(t) or 0 for t in re.findall(r"<\d+ x \w+>", text)), default=0)
