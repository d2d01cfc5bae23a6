"""A plugin for pytest that records which lines of some files each test runs: `tools/reach.py` starts it.

The environment says what to record: REACH_FILES (patterns, one in a line), REACH_OUTPUT (a JSON file to write), and REACH_SECONDS. Once the
tests of a function took so many seconds of a core, the rest of them is left out, since tracing makes them slow.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest


class Recorder:
    """Gives every test a context of its own, and writes at the end what ran in each."""

    def __init__(self, files: list[str], output: Path, limit: float) -> None:
        self.output, self.limit = output, limit
        self.spent: dict[str, float] = {}  # seconds of a core, by function
        self.measured = coverage.Coverage(data_file=None, include=files, config_file=False)
        self.seconds: dict[str, float] = {}
        self.passed: set[str] = set()
        self.measured.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Record one test."""
        name = item.nodeid.partition("[")[0]
        if self.spent.get(name, 0.0) > self.limit:
            item.add_marker(pytest.mark.skip(reason="enough tests of this function were recorded"))
        self.measured.switch_context(item.nodeid)
        begun = time.process_time()
        answer = yield
        self.seconds[item.nodeid] = time.process_time() - begun
        self.spent[name] = self.spent.get(name, 0.0) + self.seconds[item.nodeid]
        self.measured.switch_context("")
        return answer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the tests that passed."""
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the lines of each file, with a number whose bits are the tests."""
        self.measured.stop()
        data = self.measured.get_data()
        tests = [t for t in self.seconds if t in self.passed]
        bit = {t: 1 << n for n, t in enumerate(tests)}
        lines: dict[str, dict[int, str]] = {}
        for name in data.measured_files():
            reached = {line: sum(bit.get(c, 0) for c in contexts) for line, contexts in data.contexts_by_lineno(name).items()}
            lines[name] = {line: f"{mask:x}" for line, mask in sorted(reached.items()) if mask}
        written: dict[str, Any] = {"tests": [[t, round(self.seconds[t], 3)] for t in tests], "lines": lines}
        temporary = self.output.with_suffix(".part")
        temporary.write_text(json.dumps(written), encoding="utf-8")
        temporary.replace(self.output)


def pytest_configure(config: pytest.Config) -> None:
    """Begin before the tests are collected."""
    files, output, limit = (os.environ[f"REACH_{name}"] for name in ("FILES", "OUTPUT", "SECONDS"))
    config.pluginmanager.register(Recorder(files.splitlines(), Path(output), float(limit)), "reach")
