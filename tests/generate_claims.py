"""Random kernels whose blocks and loops claim anything: kinds S, R and O at random over stencils, scans, histograms, gathers, scatters.

    case = make_block(7)            # case.text is a kernel; case.oracle the same as plain Python loops, in the order of the program

Every access is in range by construction; integers make every order of a sum the same. A kernel may be refused; one that is taken must
give what the plain loops give.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
HEAD = 'n = dim("n", max=8)\nm = dim("m", max=8)\n\n\n'
PARAMS = "x: Tensor[i64, n, 8], z: Tensor[i64, m], at: Tensor[i64, 8], y: InOut[i64, 64], w: InOut[i64, 24, 24]"
LANES = 8


@dataclass(frozen=True)
class Case:
    """A kernel's text, and a Python program over the same names."""

    text: str
    oracle: str

    def expected(self, arguments: list[Array]) -> list[Array]:
        """The arguments after the plain loops have run."""
        names: dict[str, Any] = dict(zip(("x", "z", "at", "y", "w"), (a.copy() for a in arguments), strict=True))
        names |= {"n": len(names["x"]), "m": len(names["z"]), "select": lambda c, a, b: a if c else b}
        exec(self.oracle, names)  # a text that was made here
        return [names[k] for k in ("y", "w")]


def make_arguments(seed: int) -> list[Array]:
    """Small numbers; indices with and without repetitions."""
    rng = np.random.default_rng(seed)
    at = rng.permutation(8) if seed % 2 else rng.integers(0, 8, 8)
    return [
        rng.integers(-9, 9, (int(rng.integers(0, 9)), 8)),
        rng.integers(-9, 9, int(rng.integers(0, 9))),
        at,
        rng.integers(-9, 9, 64),
        rng.integers(-9, 9, (24, 24)),
    ]


class Maker:
    """Makes one kernel."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = ["a", "b"]

    def pick(self, items: Any) -> Any:
        return self.random.choice(items)

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    # Every variable runs in 0..8.

    def index(self) -> str:
        """An index from 0 to 15 over the variables."""
        v, u = self.pick(self.names), self.pick(self.names)
        near = [
            v,
            v,
            v,
            v,
            f"{v} + 1",
            f"{v} + 8",
            f"{v} * 2",
            f"{v} // 2",
            f"{v} % 4",
            f"7 - {v}",
            f"{v} + {u}",
            f"at[{v}]",
            "0",
            "3",
            f"{v} // 4 * 4 + {v} % 4",
        ]
        return str(self.pick(near))

    def place(self, name: str) -> str:
        if name == "y":
            flat = [self.index(), self.index(), f"{self.pick(self.names)} * 8 + {self.pick(self.names)}", f"{self.index()} * 2 + 1"]
            return f"y[{self.pick(flat)}]"
        if self.chance(0.6) and len(self.names) > 1:
            first, second = self.random.sample(self.names, 2)
            return f"w[{first}, {second}]"
        return f"w[{self.index()}, {self.index()}]"

    def value(self, depth: int = 2) -> str:
        if not depth or self.chance(0.3):
            v = self.pick(self.names)
            leaves = [f"at[{v}]", v, "1", "2", f"at[at[{v}]]"]
            return str(self.pick([*leaves, self.place(self.pick(["y", "w"]))] if self.chance(0.5) else leaves))
        a, b = self.value(depth - 1), self.value(depth - 1)
        return str(self.pick([f"{a} + {b}", f"{a} - {b}", f"max({a}, {b})", f"select({self.condition()}, {a}, {b})"]))

    def condition(self) -> str:
        v = self.pick(self.names)
        return str(self.pick([f"{v} > 0", f"{v} < 4", f"{v} == 0", f"{v} % 3 != 1", f"at[{v}] > 3"]))

    def statement(self) -> list[str]:
        p, e = self.place(self.pick(["y", "y", "w"])), self.value()
        match self.random.randrange(8):
            case 0 | 1 | 2:
                return [f"{p} += {e}"]
            case 3:
                return [f"{p} = max({p}, {e})"]
            case 4:
                return [f"if {self.condition()}:", f"    {p} = {e}"]
            case 5:
                return [f"t = {e}", f"{p} = t + 1"]
            case 6:
                q = self.place(p[0])
                return [f"{p} = {q} + 1"]
        return [f"{p} = {e}"]

    def body(self) -> list[str]:
        lines = self.statement()
        return lines + [s for s in self.statement() if not s.startswith("t = ") and "t + 1" not in s] if self.chance(0.25) else lines


def extents(maker: Maker) -> list[str]:
    return [maker.pick(["n", "m", "8", "5", "1"]) for _ in maker.names]


def make_block(seed: int) -> Case:
    """A nest of loops around a block."""
    maker = Maker(seed)
    maker.names = maker.pick([["a"], ["a", "b"], ["a", "b"]])
    kinds = "".join(maker.pick("SSSRO") for _ in maker.names)
    limits = extents(maker)
    body = maker.body()
    predicate = maker.condition() if maker.chance(0.3) else ""
    loops = [f"for {v}_i in range({e}):" for v, e in zip(maker.names, limits, strict=True)]
    depth = len(loops)
    names = ", ".join(maker.names)
    text = [f"{'    ' * (k + 1)}{line}" for k, line in enumerate(loops)]
    bound = ", ".join(f"{v}_i" for v in maker.names)
    inside = "    " * (depth + 2)
    text.append(f'{"    " * (depth + 1)}with block("k", "{kinds}", {bound}) as ({names},):')
    text += [f"{inside}where({predicate})"] if predicate else []
    text += [inside + s for s in body]
    plain = [f"{'    ' * k}{line}" for k, line in enumerate(loops)]
    within = "    " * depth
    plain.append(f"{within}{names} = {bound}")
    plain += [f"{within}if not ({predicate}): continue"] if predicate else []
    plain += [within + s for s in body]
    return Case(f"{HEAD}@kernel\ndef k({PARAMS}) -> None:\n" + "\n".join(text) + "\n", "\n".join(plain))


def make_loop(seed: int) -> Case:
    """A concurrent loop, perhaps with another one around it."""
    maker = Maker(seed)
    maker.names = maker.pick([["a"], ["a", "b"]])
    body = maker.body()
    kind = maker.pick(["parallel", "vector"])
    inner = f"for a in {kind}({maker.pick(['n', 'm', 8]) if kind == 'parallel' else LANES}):"
    outer = ["for b in range(m):"] if len(maker.names) > 1 else []
    lines = [*outer, inner]
    text = [f"{'    ' * (k + 1)}{line}" for k, line in enumerate(lines)] + ["    " * (len(lines) + 1) + s for s in body]
    plain = [f"{'    ' * k}{line.replace('parallel', 'range').replace('vector', 'range')}" for k, line in enumerate(lines)]
    plain += ["    " * len(lines) + s for s in body]
    return Case(f"{HEAD}@kernel(scheduled=True)\ndef k({PARAMS}) -> None:\n" + "\n".join(text) + "\n", "\n".join(plain))
