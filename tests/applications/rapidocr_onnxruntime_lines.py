"""RapidOCR on two lines of text: detector, classifier and recognizer; argument: where the results go."""

import json
import sys
from pathlib import Path

import cv2
import numpy as np
from rapidocr_onnxruntime import RapidOCR

image = np.full((140, 420, 3), 255, np.uint8)
for line, text in enumerate(["Hello World 123", "Shapes that bend"]):
    cv2.putText(image, text, (20, 50 + 60 * line), cv2.FONT_HERSHEY_SIMPLEX, 1.2, (0, 0, 0), 2)
lines, _ = RapidOCR()(image)
Path(sys.argv[1]).write_text(json.dumps([[np.asarray(box).tolist(), text, float(score)] for box, text, score in lines]))
