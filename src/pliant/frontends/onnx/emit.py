"""The operators as rules call them. Their types are about the dtypes of what users write; values of an importer have none of these."""

from __future__ import annotations

from typing import Any

from ...graph import ops as _ops

ops: Any = _ops
