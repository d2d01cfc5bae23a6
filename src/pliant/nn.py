"""`pliant.nn`, whose home is `pliant.frontends.nn`."""

from .frontends.nn import *  # noqa: F403
from .frontends.nn import __all__ as __all__
