"""A plugin for pytest: tests of different functions take turns, so that a short run sees all of them."""

from __future__ import annotations

from itertools import zip_longest

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of each function, then the second of each, and so on."""
    by: dict[str, list[pytest.Item]] = {}
    for item in items:
        by.setdefault(item.nodeid.partition("[")[0], []).append(item)
    items[:] = [item for row in zip_longest(*by.values()) for item in row if item is not None]
