"""NudeNet on an image and a batch of two; argument: where the results go."""

import json
import sys
from pathlib import Path

import numpy as np
from nudenet import NudeDetector, nudenet

y, x = np.mgrid[0:240, 0:320]
image = np.stack([np.sin(x / 17) + np.cos(y / 23), 2 * np.sin(x / 7), 2 * np.cos((x + y) / 31)], -1)
image = (image * 60 + 128).astype(np.uint8)
detector = NudeDetector()
(scores,) = detector.onnx_session.run(None, {detector.input_name: nudenet._read_image(image, 320)[0]})
found = [scores.tolist(), detector.detect(image), detector.detect_batch([image, image[::-1].copy()])]
Path(sys.argv[1]).write_text(json.dumps(found))
