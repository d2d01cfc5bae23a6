"""Layers of convolutional nets take the rules that are made for them, with static sizes as with dynamic ones."""

from __future__ import annotations

import re

import pytest

from conv_layers import LAYERS, Layer, net
from pliant.pipeline import compile_as_far_as
from pliant.program import Program
from pliant.target import target

BY_NAME = {layer.name: layer for layer in LAYERS}
SOME = (
    "3x3 64->64 56x56 residual",
    "3x3 24->24 104x104 silu",
    "1x1 80->200 14x14 hard_swish",
    "1x1 80->18 80x80",
    "3x3 3->16 320x320 /2 silu",
    "depthwise 5x5 120->120 28x28 hard_swish",
    "depthwise 3x3 72->72 56x56 relu",
)


def rules(layer: Layer, dynamic: bool) -> list[str]:
    """The rule of every kernel of the net with what is in its write-back; sizes of tiles, and where padding is, are left out.

    Only rows of constant length can be copied to the stack; others are padded in memory by a block of their own.
    """
    program = net(layer, dynamic)
    state = compile_as_far_as("schedule", program if isinstance(program, Program) else Program(program), target("llvm:x86-64-v4"))
    assert state.kernels is not None
    where = r" in tiles of \d+x\d+|, rows with their padding on the stack|; elementwise: `padded` with vectors along `\w+`"
    return [re.sub(where, "", rule.why.splitlines()[0]) for rule in state.kernels.rules()]


@pytest.mark.parametrize("name", SOME)
def test_static_sizes_take_the_rules_of_dynamic_ones(name: str) -> None:
    static, dynamic = (rules(BY_NAME[name], d) for d in (False, True))
    assert static == dynamic
    assert all(re.match("convolution|winograd|windows|matmul", rule) for rule in static)


def test_there_are_sixty_layers() -> None:
    assert len(BY_NAME) == len(LAYERS) >= 60
