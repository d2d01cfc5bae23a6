"""The execution providers that an application asks for: names, or pairs of a name and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def normalized(providers: Any, provider_options: Any) -> dict[str, dict[str, str]]:
    """Returns the options of each provider by name, in order, as texts; an empty dict for None.

    Providers are names or pairs (name, options), or names if the list `provider_options` is given. Raises ValueError for other forms.
    """
    if providers is None:
        return {}
    if not isinstance(providers, Sequence) or isinstance(providers, str):
        raise ValueError("'providers' should be a sequence.")
    if provider_options is None:
        return dict(_pair(p) for p in providers)
    if not isinstance(provider_options, Sequence) or len(providers) != len(provider_options):
        raise ValueError("'providers' and 'provider_options' should be the same length if both are given.")
    if not all(isinstance(p, str) for p in providers):
        raise ValueError("Only string values for 'providers' are supported if 'provider_options' is given.")
    return dict(_pair(pair) for pair in zip(providers, provider_options, strict=True))


def _pair(provider: Any) -> tuple[str, dict[str, str]]:
    """Returns the name and the options of a provider that is a name or a pair; raises ValueError for anything else."""
    name, options = (provider, {}) if isinstance(provider, str) else provider if _is_pair(provider) else (None, {})
    if not isinstance(name, str) or not isinstance(options, Mapping):
        raise ValueError("'providers' values must be either strings or (string, dict) tuples.")
    return name, {str(k): str(v) for k, v in options.items()}


def _is_pair(provider: Any) -> bool:
    return isinstance(provider, tuple | list) and len(provider) == 2
