"""Worker processes of `pliant bench`, one module per runtime: each takes a JSON record as its argument and prints another one.

    {"model": path, "threads": 2, "prompts": [16, 512], "contexts": [0, 512], "seconds": 1.0}
    -> {"prefill": {"16": tokens/s, "512": …}, "decode": {"0": tokens/s, "512": …}}

The module of a peer imports nothing from Pliant, because it may run in another Python.
"""
