"""Worker that measures the limits of the machine: peak FMA rate and memory bandwidth."""

from __future__ import annotations

import json
import sys
from typing import Any


def main(given: dict[str, Any]) -> dict[str, float]:
    """Measures the machine's limits: returns FMA operations and bytes read from memory, per second."""
    from ...machine_peak import fma_rate, read_bandwidth

    return {
        "operations": fma_rate(given["threads"], seconds=given["seconds"]),
        "bytes": read_bandwidth(given["threads"], seconds=given["seconds"]),
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
