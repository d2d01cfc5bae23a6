"""Silero VAD, chunk by chunk at both of its sampling rates, with torch; argument: where the results go."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from silero_vad import get_speech_timestamps, load_silero_vad

model = load_silero_vad(onnx=True)
found = []
for rate, chunk in ((16000, 512), (8000, 256)):
    t = np.arange(2 * rate) / rate
    sound = 0.3 * np.sin(2 * np.pi * 140 * t) * (1 + np.sin(2 * np.pi * 3 * t)) + 0.1 * np.sin(2 * np.pi * 700 * t)
    audio = torch.from_numpy(sound.astype(np.float32))
    model.reset_states()
    found.append([float(model(audio[i : i + chunk], rate)[0, 0]) for i in range(0, len(audio) - chunk + 1, chunk)])
    found.append(get_speech_timestamps(audio, model, threshold=0.01, sampling_rate=rate))
Path(sys.argv[1]).write_text(json.dumps(found))
