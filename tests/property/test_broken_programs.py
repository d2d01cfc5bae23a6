"""Programs with something that no program may have are refused in words, whatever else is in them; as they were they are not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from broken_programs import broken, moved
from counts import seeds
from generate_kernels import make_kernel
from generate_loops import make_program
from pliant.loop.verify import verify_written
from pliant.support.errors import Error

BATCH = 20


@pytest.mark.parametrize("first", seeds(300, 20_000, BATCH))
def test_what_is_broken_is_refused(first: int) -> None:
    for seed in range(first, first + BATCH):
        func = make_program(seed) if seed % 3 == 0 else make_kernel(seed)
        verify_written(moved(func))
        for what, changed in broken(func, seed):
            with pytest.raises(Error):  # of what no text has, the verifier says that the compiler is wrong, which is an error of its own
                verify_written(changed)
                pytest.fail(f"seed {seed}: {what} is not refused:\n{changed}")
