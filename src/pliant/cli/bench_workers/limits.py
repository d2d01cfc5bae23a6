"""The machine: multiply-adds and bytes read in a second."""

from __future__ import annotations

import json
import sys
from typing import Any


def main(given: dict[str, Any]) -> dict[str, float]:
    """Measures both rates."""
    from ...machine_peak import fma_rate, read_bandwidth

    return {
        "operations": fma_rate(given["threads"], seconds=given["seconds"]),
        "bytes": read_bandwidth(given["threads"], seconds=given["seconds"]),
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
