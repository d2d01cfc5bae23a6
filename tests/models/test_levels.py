"""A sample of the suite again, as on lesser machines: kernels, models and chat at each x86-64 level below this machine.

`python -m pytest --cpu x86-64-v2` runs all of it there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from levels import runs_here

TESTS = Path(__file__).parent.parent
SAMPLE = (
    "parity/test_rows.py",
    "parity/test_attention.py",
    "parity/test_paged_attention.py",
    "parity/test_packed.py",
    "models/test_decoder_layer.py",
    "models/test_tiny_decoders.py::test_logits_are_those_of_float64[llama in all types]",
    "models/test_tiny_decoders.py::test_a_row_alone_is_the_row_in_a_batch",
    "models/test_tiny_decoders.py::test_threads_do_not_matter",
    "models/test_onnx_small.py",
    "runtime/test_chat.py",
)
# Whoever asks for a level (`--cpu`) has the whole suite there already.
LEVELS = [] if os.environ.get("PLIANT_CPU") else [cpu for cpu in ("x86-64-v2", "x86-64-v3") if runs_here(f"llvm:{cpu}")]


@pytest.mark.parametrize("cpu", LEVELS)
@pytest.mark.timeout(1800)
def test_a_sample_on_a_lesser_machine(cpu: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "--cpu", cpu, "-x", "-p", "no:cacheprovider", *(str(TESTS / file) for file in SAMPLE)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "[100%]" in done.stdout
