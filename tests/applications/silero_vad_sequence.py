"""Silero VAD on a whole recording at once, without torch in the model's way; argument: where the results go."""

import json
import sys
from pathlib import Path

import numpy as np
from silero_vad import load_silero_vad

t = np.arange(32000) / 16000
sound = 0.3 * np.sin(2 * np.pi * 140 * t) * (1 + np.sin(2 * np.pi * 3 * t))
Path(sys.argv[1]).write_text(json.dumps(load_silero_vad(sequence=True).audio_forward(sound.astype(np.float32)).tolist()))
