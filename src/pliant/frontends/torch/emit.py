"""`ops` without static types, for import rules: the types of `graph.ops` describe user code with known dtypes."""

from __future__ import annotations

from typing import Any

from ...graph import opset as _ops

ops: Any = _ops
