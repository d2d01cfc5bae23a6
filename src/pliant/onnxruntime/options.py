"""The options of sessions and runs: onnxruntime's fields with its defaults, which can be read, set, and asked what has no effect.

options = SessionOptions()
options.intra_op_num_threads = 2
options.without_effect()        # the fields and settings that were changed, but mean nothing here
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn

from .enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
from .errors import NotImplemented as NotSupported
from .values import OrtValue

EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"  # where the external data of a model in memory lies
START_FAST = "pliant.start_fast"  # a setting of ours: "1" or "0"


class _Fields:
    """The base of option objects: an attribute has a default, a type that is checked, and no other name can be set.

    Besides, settings have texts as keys and values.
    """

    _defaults: ClassVar[dict[str, Any]]
    _effective: ClassVar[frozenset[str]]

    def __init__(self) -> None:
        for name, value in self._defaults.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_config", {})

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets a field; raises AttributeError for a name that is none, TypeError for a value of another type than the default."""
        if name not in self._defaults:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        object.__setattr__(self, name, _of_type(type(self._defaults[name]), value, f"{type(self).__name__}.{name}"))

    def _get_entry(self, key: str) -> str:
        """Returns the setting under a key; raises RuntimeError if it was not set."""
        config: dict[str, str] = self.__dict__["_config"]
        if key not in config:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}")
        return config[key]

    def without_effect(self) -> list[str]:
        """Returns the names of fields and settings that differ from their defaults, but have no effect here."""
        changed = [n for n, default in self._defaults.items() if n not in self._effective and getattr(self, n) != default]
        return changed + [key for key in self.__dict__["_config"] if key not in self._effective]


def _of_type(kind: type, value: Any, what: str) -> Any:
    """Returns the value as the type of its field; raises TypeError for a value of another type.

    A bool is no int; numpy's bools and integers, and paths for texts, are converted.
    """
    import numpy as np

    if kind is bool and isinstance(value, bool | np.bool_):
        return bool(value)
    if kind is int and not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    if kind is str and isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if kind not in (bool, int, str) and isinstance(value, kind):
        return value
    raise TypeError(f"{what}: incompatible argument: {value!r} is no {kind.__name__}")


class SessionOptions(_Fields):
    """The options of a session; all of onnxruntime's fields can be set, some have an effect.

    These are the number of threads, profiling, the log level, fixed dims, replaced initializers, and two settings: the folder of external
    data, and `pliant.start_fast`. The rest is accepted.
    """

    enable_cpu_mem_arena: bool
    enable_mem_pattern: bool
    enable_mem_reuse: bool
    enable_profiling: bool
    execution_mode: ExecutionMode
    execution_order: ExecutionOrder
    graph_optimization_level: GraphOptimizationLevel
    inter_op_num_threads: int
    intra_op_num_threads: int
    log_severity_level: int
    log_verbosity_level: int
    logid: str
    optimized_model_filepath: str
    profile_file_prefix: str
    use_deterministic_compute: bool
    use_per_session_threads: bool

    _defaults: ClassVar[dict[str, Any]] = {
        "enable_cpu_mem_arena": True,
        "enable_mem_pattern": True,
        "enable_mem_reuse": True,
        "enable_profiling": False,
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "execution_order": ExecutionOrder.DEFAULT,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
        "inter_op_num_threads": 0,
        "intra_op_num_threads": 0,
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "optimized_model_filepath": "",
        "profile_file_prefix": "onnxruntime_profile_",
        "use_deterministic_compute": False,
        "use_per_session_threads": True,
    }
    # Results never depend on the number of threads or the run, so deterministic computation is what one always has.
    _effective = frozenset(
        ("enable_profiling", "intra_op_num_threads", "log_severity_level", "profile_file_prefix", "use_deterministic_compute")
    ) | {EXTERNAL_FOLDER, START_FAST}

    def __init__(self) -> None:
        super().__init__()
        self.__dict__.update(_dims_by_name={}, _dims_by_denotation={}, _initializers={})

    @property
    def fixed_dims(self) -> tuple[dict[str, int], dict[str, int]]:
        """The values that were given to dims: a dict by their names, and one by their denotations."""
        return self.__dict__["_dims_by_name"], self.__dict__["_dims_by_denotation"]

    @property
    def initializers(self) -> dict[str, Any]:
        """The arrays that replace initializers of the model, by name; the dict itself, not a copy."""
        return self.__dict__["_initializers"]  # type: ignore[no-any-return]

    @property
    def start_fast(self) -> bool:
        """True if a session answers with what compiles fastest, until the full program has been compiled in the background."""
        return self.__dict__["_config"].get(START_FAST) == "1"  # type: ignore[no-any-return]

    @property
    def external_folder(self) -> str | None:
        """The folder of the external data of a model that is given as bytes; None if it was not set."""
        return self.__dict__["_config"].get(EXTERNAL_FOLDER)  # type: ignore[no-any-return]

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Sets a setting of the session by its key; raises TypeError unless both are texts."""
        self.__dict__["_config"][_of_type(str, key, "key")] = _of_type(str, value, "value")

    def get_session_config_entry(self, key: str) -> str:
        """Returns a setting of the session; raises RuntimeError if it was not set."""
        return self._get_entry(key)

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Gives the dims of the model's inputs that have this name a fixed value, in sessions made with these options."""
        self.fixed_dims[0][_of_type(str, name, "name")] = _of_type(int, value, "value")

    def add_free_dimension_override_by_denotation(self, denotation: str, value: int) -> None:
        """Gives the dims of the model's inputs that have this denotation a fixed value, in sessions made with these options."""
        self.fixed_dims[1][_of_type(str, denotation, "denotation")] = _of_type(int, value, "value")

    def add_initializer(self, name: str, value: Any) -> None:
        """Replaces an initializer of the model by an OrtValue or an array; a session raises InvalidArgument for an unknown name."""
        self.add_external_initializers([name], [value])

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Replaces initializers of the model by OrtValues or arrays; raises ValueError for lists of different lengths."""
        if len(names) != len(values):
            raise ValueError(f"there are {len(names)} names of initializers and {len(values)} values")
        for name, value in zip(names, values, strict=True):
            self.initializers[name] = value.numpy() if isinstance(value, OrtValue) else value

    def add_provider(self, name: str, options: Any) -> None:
        """Accepts "CPUExecutionProvider", and ignores its options; raises NotImplemented for others."""
        if name != "CPUExecutionProvider":
            raise NotSupported(f"there is no execution provider {name}", help='there is "CPUExecutionProvider"')

    def has_providers(self) -> bool:
        """Returns False: execution providers are arguments of a session."""
        return False

    def register_custom_ops_library(self, path: str) -> NoReturn:
        """Raises NotImplemented: such a library has kernels for onnxruntime's own process."""
        raise NotSupported(
            f"the custom operators of {path} are native code for onnxruntime",
            help='declare the operators with @pliant.operator, or run the model with pliant.from_onnx("model.onnx", fallback=True)',
        )


class RunOptions(_Fields):
    """The options of a run; only `terminate` has an effect.

    Setting it to True stops the runs that have these options now, and later ones with them: they raise Fail.
    """

    log_severity_level: int
    log_verbosity_level: int
    logid: str
    only_execute_path_to_fetches: bool
    terminate: bool

    _defaults: ClassVar[dict[str, Any]] = {
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "only_execute_path_to_fetches": False,
        "terminate": False,
    }
    _effective = frozenset(("terminate",))

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["stops"] = []  # functions that stop the runs which have these options now

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets a field, as `_Fields` does; True for `terminate` stops the runs that have these options now."""
        super().__setattr__(name, value)
        if name == "terminate" and self.terminate:
            stops: list[Callable[[], object]] = self.__dict__["stops"]
            for stop in list(stops):
                stop()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Sets a setting of the run by its key; it has no effect. Raises TypeError unless both are texts."""
        self.__dict__["_config"][_of_type(str, key, "key")] = _of_type(str, value, "value")

    def get_run_config_entry(self, key: str) -> str:
        """Returns a setting of the run; raises RuntimeError if it was not set."""
        return self._get_entry(key)
