"""Language models against llama.cpp: tokens read and written in a second, and the time from a program's start to the first token.

    python benchmarks/chat.py [--model smollm2-135m] [--peer-python ~/llama/bin/python] [--rounds 5]

The first table is that of `pliant bench`. The second has processes that are started, answer a short prompt with one token, and end: with
an empty code cache (everything is compiled), and with what the first one left there.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

from contest import PLACES

PROMPT = "Tell me in one short sentence why the sky is blue."
MEMORY = "import resource, sys; from pliant.cli import main; code = main(sys.argv[1:]); " + (
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, file=sys.stderr); sys.exit(code)"
)


def environment(**own: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*PLACES, os.environ.get("PYTHONPATH", "")]), **own}


def first_token(path: str, **own: str) -> tuple[float, int]:
    """Seconds from the start of a process to the end of its answer of one token, and its largest resident memory in MiB."""
    command = [sys.executable, "-c", MEMORY, "chat", "-m", path, "--max-tokens", "1", PROMPT]
    begin = time.perf_counter()
    done = subprocess.run(command, env=environment(**own), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return time.perf_counter() - begin, int(done.stderr.split()[-1])


def main() -> None:
    """Runs both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--peer-python", default=os.environ.get("PLIANT_PEER_PYTHON", sys.executable))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--prompt", default="16,128,512,2048")
    parser.add_argument("--context", default="0,512,2048")
    options = parser.parse_args()
    from pliant.llm.locate import locate

    path = str(locate(options.model))
    table = ["bench", "-m", path, "--vs", "llama.cpp", "--peer-python", options.peer_python, "--rounds", str(options.rounds)]
    table += ["--threads", options.threads, "--prompt", options.prompt, "--context", options.context]
    subprocess.run([sys.executable, "-m", "pliant", *table], env=environment(), check=True)
    with tempfile.TemporaryDirectory() as folder:
        cold, _ = first_token(path, PLIANT_CACHE=folder)
        warm, memory = zip(*(first_token(path, PLIANT_CACHE=folder) for _ in range(options.rounds)), strict=True)
    print(f"\n{'from the start of a process to its first token':54} {'best':>9} {'median':>9}")
    print(f"{'first compile, s':54} {cold:9.2f}")
    print(f"{'warm, s':54} {min(warm):9.2f} {statistics.median(warm):9.2f}")
    label = f"resident memory, warm, MiB (the file: {os.path.getsize(path) >> 20})"
    print(f"{label:54} {min(memory):9} {statistics.median(memory):9.0f}")


if __name__ == "__main__":
    main()
