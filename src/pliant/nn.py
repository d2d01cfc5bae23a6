"""Alias: `pliant.nn` is `pliant.frontends.nn`."""

from .frontends.nn import *  # noqa: F403
from .frontends.nn import __all__ as __all__
