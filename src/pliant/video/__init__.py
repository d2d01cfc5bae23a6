"""Video: nets that compute what changed since the last frame.

s = pliant.video.Stream("yolov8n.onnx", error=0.01)
for frame in pliant.video.frames("clip.mp4", size=s.size):
    y = s(frame)
"""

from .calibration import Calibration
from .frames import frames
from .pictures import Pixels
from .program import Last
from .stream import Stream

__all__ = ["Calibration", "Last", "Pixels", "Stream", "frames"]
