"""What `pliant bench` measures, each in a process of its own: a file takes one argument, a JSON record, and prints another one.

    {"model": path, "threads": 2, "prompts": [16, 512], "contexts": [0, 512], "seconds": 1.0}
    -> {"prefill": {"16": tokens/s, "512": …}, "decode": {"0": tokens/s, "512": …}}

A peer's file imports nothing of Pliant, because it may run in another Python.
"""
