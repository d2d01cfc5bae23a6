"""Human-readable numbers: bytes, rates and counts with three significant digits."""

from __future__ import annotations


def in_bytes(count: int) -> str:
    """Returns a number of bytes as text in powers of 1024: `32 KiB`, `1.5 MiB`."""
    return _scaled(count, 1024, ("bytes", "KiB", "MiB", "GiB", "TiB"))


def per_second(rate: float, unit: str) -> str:
    """Returns a rate as text in powers of 1000: `28.3 GB/s`."""
    return _scaled(rate, 1000, (f"{unit}/s", f"k{unit}/s", f"M{unit}/s", f"G{unit}/s", f"T{unit}/s"))


def in_words(count: int) -> str:
    """Returns a number of things as people say it: `0`, `512`, `3.15 million`."""
    return _scaled(count, 1000, ("", "thousand", "million", "billion", "trillion")).rstrip()


def _scaled(value: float, base: int, units: tuple[str, ...]) -> str:
    """Returns a number as text with the largest unit that keeps it at least 1."""
    for unit in units[:-1]:
        if value < base:
            return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"
        value /= base
    return f"{value:.0f} {units[-1]}" if value >= 999.5 else f"{value:.3g} {units[-1]}"


def in_seconds(seconds: float) -> str:
    """Returns a duration as text with three digits: `12.3 us`, `1.5 ms`, `2 s`."""
    scale, unit = next(((f, u) for f, u in ((1.0, "s"), (1e3, "ms"), (1e6, "us")) if seconds * f >= 1), (1e9, "ns"))
    return f"{seconds * scale:.3g} {unit}"
