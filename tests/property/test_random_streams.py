"""Random convolutional nets as video streams: every bit of every result is that of the program that computes whole frames."""

from __future__ import annotations

import numpy as np
import pytest

import pliant
from counts import seeds
from pliant.program import Program
from pliant.video.program import ALWAYS_LISTS, ALWAYS_WHOLE, LISTS, compile_stream
from random_streams import make_clip, make_net

WAYS = {"auto": LISTS, "lists": ALWAYS_LISTS, "dense": ALWAYS_WHOLE}


FOUND = (84,)  # a softmax over channels in planes, whose sum had another order in lists


@pytest.mark.parametrize("seed", sorted({*seeds(10, 200), *FOUND}))
def test_streams_equal_whole_frames(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIANT_DISABLE", "winograd_convolutions,pointwise_convolutions")
    net = make_net(seed)
    threads = 1 + seed % 2
    whole = pliant.compile(Program(net), threads=threads, cache=False)
    stream = compile_stream(Program(net), threads=threads, cache=False)
    for name, most in WAYS.items():
        state = stream.new_state()
        for k, frame in enumerate(make_clip(net, seed)):
            found = stream.step(frame, state, stream.exact, most)
            want = whole(frame)
            for a, b in zip(found.values(), want if isinstance(want, tuple) else (want,), strict=True):
                assert np.array_equal(np.asarray(a).view(np.uint32), np.asarray(b).view(np.uint32)), (
                    f"frame {k} of seed {seed}, {name}:\n{net}"
                )
