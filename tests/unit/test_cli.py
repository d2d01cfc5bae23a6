"""The command line, through processes of its own: answers, exit codes, messages without tracebacks."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import llvmlite
import numpy as np
import pytest

import pliant
from pliant.cli import COMMANDS
from pliant.runtime.code_cache import Cache
from pliant.support.units import in_bytes, per_second
from pliant.target import target

SRC = Path(pliant.__file__).parent.parent


def run(*args: str, code: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """`pliant args`; `code` is executed before it."""
    command = ["-c", f"{code}\nimport sys; from pliant.cli import main; sys.exit(main())"] if code else ["-m", "pliant"]
    around = {k: v for k, v in os.environ.items() if k == "PLIANT_CPU" or not k.startswith(("PLIANT_", "OMP_"))}
    path = os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")])
    return subprocess.run([sys.executable, *command, *args], env={**around, "PYTHONPATH": path, **env}, capture_output=True, text=True)


def doctor(*args: str, **env: str) -> dict[str, Any]:
    done = run("doctor", "--json", *args, **env)
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if found["problems"] else 0)
    return found


# The frame.


def test_version_and_help() -> None:
    assert run("--version").stdout == f"pliant {pliant.__version__}\n"
    shown = run("--help")
    assert shown.returncode == 0
    assert all(f"  {name}  " in shown.stdout for name in COMMANDS)
    for name in COMMANDS:
        one = run(name, "--help")
        assert one.returncode == 0 and "--json" in one.stdout, name


def test_help_loads_neither_numpy_nor_llvm() -> None:
    code = "import atexit, sys; atexit.register(lambda: print([m for m in ('numpy', 'llvmlite') if m in sys.modules], file=sys.stderr))"
    for args in (["--help"], ["--version"], ["doctor", "--help"], ["export", "--help"], ["cache", "info"]):
        assert run(*args, code=code).stderr == "[]\n", args


def test_no_command_is_wrong_usage() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: pliant <command>")


@pytest.mark.parametrize(
    ("args", "what", "help_"),
    [
        (["docter"], "there is no command `docter`", "did you mean `doctor`?"),
        (["xyz"], "there is no command `xyz`", "one of " + ", ".join(f"`{name}`" for name in COMMANDS)),
        (["--versoin"], "there is no option `--versoin`", "did you mean `--version`?"),
        (["doctor", "--jsn"], "there is no option `--jsn`", "did you mean `--json`?"),
        (["doctor", "now", "then"], "there is no argument `then`", "`pliant doctor --help` shows the options"),
        (["cache", "clera"], "there is no action `clera`", "did you mean `clear`?"),
        (["cache"], "the following arguments are required: info | clear", "`pliant cache --help` shows the options"),
    ],
)
def test_wrong_usage(args: list[str], what: str, help_: str) -> None:
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"pliant: {what}\nhelp: {help_}\n"


BROKEN = "import pliant.cli.doctor as d\ndef broken(): raise {}\nd.known_facts = broken"


@pytest.mark.parametrize(
    ("error", "code", "first"),
    [
        ("d.KeyError('inside')", 1, "pliant: KeyError: 'inside'"),
        ("__import__('pliant').ShapeError('no such dim')", 1, "pliant: no such dim"),
        ("__import__('pliant').ModelFileError('a broken file')", 2, "pliant: a broken file"),
        ("__import__('pliant').UnsupportedError('not served')", 2, "pliant: not served"),
    ],
)
def test_failures_are_messages(error: str, code: int, first: str) -> None:
    program = BROKEN.format(error.replace("d.KeyError", "KeyError"))
    done = run("doctor", code=program)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.splitlines()[0] == first
    assert "Traceback" not in done.stderr
    assert "Traceback" in run("doctor", code=program, PLIANT_DEBUG="1").stderr


def test_interrupt() -> None:
    assert run("doctor", code=BROKEN.format("KeyboardInterrupt")).returncode == 130


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_interrupt_from_outside() -> None:
    code = "import pliant.cli.doctor as d, time, sys\ndef slow(): print('now', flush=True); time.sleep(60)\nd.known_facts = slow"
    command = [sys.executable, "-c", f"{code}\nfrom pliant.cli import main; sys.exit(main(['doctor']))"]
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None and process.stdout.readline() == "now\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of Unix")
def test_reader_that_leaves() -> None:
    code = "import os, sys; r, w = os.pipe(); os.close(r); os.dup2(w, 1)"
    done = run("doctor", "--no-measure", code=code)
    assert done.stderr == ""


# doctor.


def test_doctor_tells_the_facts(tmp_path: Path) -> None:
    found = doctor("--no-measure", PLIANT_CACHE=str(tmp_path / "new"))
    machine = target("native")
    assert found["pliant"] == pliant.__version__
    assert found["python"] == {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
    }
    assert (found["numpy"], found["llvmlite"]["version"]) == (np.__version__, llvmlite.__version__)
    assert int(found["llvmlite"]["llvm"].split(".")[0]) >= 14
    assert found["system_is_tested"] == (platform.machine() == "x86_64" and sys.platform == "linux")
    assert found["extras"]["onnx"]["version"] == (None if importlib.util.find_spec("onnx") is None else importlib.metadata.version("onnx"))
    assert (found["system"], found["processors"]) == (platform.platform(), os.cpu_count())
    assert found["target"]["vector_bits"] == machine.vector_bits
    assert found["target"]["features"] == list(machine.features)
    assert found["target"]["caches"]["l2"] == machine.caches.l2
    assert found["measured"] is None and found["problems"] == []
    assert found["code_cache"] == {
        "folder": str(tmp_path / "new" / "code"),
        "entries": 0,
        "bytes": 0,
        "limit_bytes": 512 << 20,
        "writable": True,
    }
    assert not (tmp_path / "new").exists()  # looking leaves no trace


def test_doctor_for_people(tmp_path: Path) -> None:
    done = run("doctor", "--no-measure", PLIANT_CACHE=str(tmp_path), COLUMNS="200")
    assert (done.returncode, done.stderr) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line[0] != " ")
    assert lines["Pliant"] == pliant.__version__
    assert lines["numpy"] == np.__version__
    assert f"(llvmlite {llvmlite.__version__})" in lines["LLVM"]
    assert lines["system"] == platform.platform()
    assert f"{target('native').vector_bits}-bit vectors" in lines["target"]
    if sys.platform == "linux" and platform.machine() == "x86_64":
        names = [x.partition(":")[2].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")]
        assert lines["CPU"].startswith(names[0])


def test_doctor_names_the_rule_of_threads() -> None:
    code = "import json; from pliant.runtime.threads import resolve_threads; print(json.dumps(resolve_threads()))"
    count, rule = json.loads(run("--version", code=code).stdout.splitlines()[0])
    assert doctor("--no-measure")["threads"] == {"count": count, "rule": rule}
    assert doctor("--no-measure", PLIANT_NUM_THREADS="3")["threads"] == {"count": 3, "rule": "PLIANT_NUM_THREADS"}
    assert doctor("--no-measure", OMP_NUM_THREADS="5")["threads"] == {"count": 5, "rule": "OMP_NUM_THREADS"}


def test_doctor_counts_the_code_cache(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "code")
    for k in range(3):
        cache.put(bytes([k]), b"x" * 1000)
    found = doctor("--no-measure", PLIANT_CACHE=str(tmp_path))["code_cache"]
    assert (found["entries"], found["bytes"]) == (3, sum(f.stat().st_size for f in (tmp_path / "code").iterdir()))


def test_doctor_measures(tmp_path: Path) -> None:
    rates = doctor(PLIANT_CACHE=str(tmp_path), PLIANT_NUM_THREADS="2")["measured"]
    for values in (rates["fma_flop_per_second"], rates["read_bytes_per_second"]):
        assert list(values) == ["1", "2"]
        assert all(1e6 < v < 1e15 for v in values.values())  # a number of this unit, whatever the machine


@pytest.mark.parametrize("name", ["numpy", "llvmlite"])
def test_doctor_without_a_package(name: str) -> None:
    done = run("doctor", "--no-measure", code=f"import sys; sys.modules[{name!r}] = None")
    assert done.returncode == 1
    assert f"problem: {name} is not installed" in done.stdout
    assert f"-m pip install {name}" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_doctor_on_another_system_without_extras() -> None:
    code = "import importlib.metadata as m, sys; sys.platform = 'plan9'\n"
    code += "def version(name): raise m.PackageNotFoundError\nm.version = version\n"
    code += "from pliant.support import install_hint; install_hint.install_hint = 'pip install {}'.format"
    done = run("doctor", "--no-measure", code=code, COLUMNS="200")
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line[0] != " ")
    assert lines["system"] == f"{platform.platform()}, where the tests have not been run"
    assert lines["extras"] == "onnx missing: pip install onnx, torch missing: pip install torch"


def test_doctor_with_bad_settings(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    found = doctor(PLIANT_NUM_THREADS="many", PLIANT_CACHE=str(tmp_path / "file" / "cache"))
    assert found["threads"] is None and not found["code_cache"]["writable"]
    whats = [p["what"] for p in found["problems"]]
    assert whats[0] == "PLIANT_NUM_THREADS is `many`, expected a whole number of at least 1"
    assert whats[1] == f"compiled code is not kept for the next run: {tmp_path / 'file'} is not a folder"


# cache.


def test_cache_info_and_clear(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "code")
    cache.put(b"a", b"x" * 1000)
    (tmp_path / "code" / "notes.txt").write_text("not ours")
    place, models = str(tmp_path / "code"), str(tmp_path / "ready")
    assert run("cache", "info", PLIANT_CACHE=str(tmp_path)).stdout == (
        f"{place}: 1 entry, 1.03 KiB of at most 512 MiB\n{models}: 0 entries, 0 bytes of at most 16 GiB\n"
    )
    assert json.loads(run("cache", "clear", "--json", PLIANT_CACHE=str(tmp_path)).stdout)["removed"] == 1
    assert [f.name for f in (tmp_path / "code").iterdir()] == ["notes.txt"]
    assert run("cache", "clear", PLIANT_CACHE=str(tmp_path)).stdout == (f"{place}: 0 entries removed\n{models}: 0 entries removed\n")


def test_units() -> None:
    assert [in_bytes(n) for n in (0, 1023, 1024, 1536, 512 << 20, 3 << 40)] == [
        "0 bytes",
        "1023 bytes",
        "1 KiB",
        "1.5 KiB",
        "512 MiB",
        "3 TiB",
    ]
    assert per_second(98.14e9, "FLOP") == "98.1 GFLOP/s"
    assert per_second(999.6e9, "B") == "1000 GB/s"
