"""Magika on the bytes of four kinds of files; argument: where the results go."""

import json
import sys
from pathlib import Path

from magika import Magika

SAMPLES = [
    b"import os\nclass A:\n    def f(self):\n        return os.path.join('a', 'b')\n" * 5,
    b'#include <stdio.h>\nint main(void) { printf("%d\\n", 1); return 0; }\n' * 4,
    b'{"a": [1, 2, 3], "b": {"c": null}}\n' * 10,
    b"PK\x03\x04" + bytes(range(256)) * 20,
]
magika = Magika()
results = [magika.identify_bytes(sample) for sample in SAMPLES]
Path(sys.argv[1]).write_text(json.dumps([[str(r.output.label), float(r.score)] for r in results]))
