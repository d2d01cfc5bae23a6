"""Makes the modules beside this file importable from every folder of tests, and Ctrl-C what it is at a terminal."""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background; children would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
