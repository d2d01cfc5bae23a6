"""What onnxruntime's module says of itself, its devices and its log, and settings of the whole process."""

from __future__ import annotations

import logging

from .. import __version__ as pliant_version

# The version of onnxruntime whose API this is: libraries compare it with the oldest that they can use.
API_VERSION = "1.31.1"
LOGGER = logging.getLogger("pliant.onnxruntime")
LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)  # by onnxruntime's severity
PROVIDERS = ["CPUExecutionProvider"]


def get_available_providers() -> list[str]:
    """Returns the names of the execution providers: only "CPUExecutionProvider"."""
    return list(PROVIDERS)


def get_all_providers() -> list[str]:
    """Returns the names of all execution providers that can be named: only "CPUExecutionProvider"."""
    return list(PROVIDERS)


def get_device() -> str:
    """Returns the name of the device: "CPU"."""
    return "CPU"


def get_version_string() -> str:
    """Returns the version of onnxruntime whose API this is, not that of Pliant."""
    return API_VERSION


def get_build_info() -> str:
    """Returns a sentence with the version of Pliant and that of onnxruntime whose API this is."""
    return f"Pliant {pliant_version}, with the API of onnxruntime {API_VERSION}"


def has_collective_ops() -> bool:
    """Returns False: there are no collective operators."""
    return False


def set_default_logger_severity(severity: int) -> None:
    """Sets the least severity that the log shows, 0 (verbose) to 4 (fatal); raises RuntimeError for another number."""
    if not 0 <= severity < len(LEVELS):
        raise RuntimeError("Invalid logging severity. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal")
    LOGGER.setLevel(LEVELS[severity])


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepts a verbosity, which has no effect: the log has one level of detail."""


def disable_telemetry_events() -> None:
    """Returns at once: Pliant sends nothing."""


def enable_telemetry_events() -> None:
    """Returns at once: Pliant sends nothing."""


def set_seed(seed: int) -> None:
    """Accepts a seed, which has no effect: no operator draws random numbers."""
