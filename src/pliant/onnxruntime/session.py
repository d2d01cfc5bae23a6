"""InferenceSession: a compiled model with the interface of onnxruntime's class.

    session = InferenceSession("model.onnx")
    y, = session.run(None, {"x": x})

One line of the log (`logging.getLogger("pliant.onnxruntime")`) says what was compiled, and what was asked for without effect.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from ..frontends.onnx.external import Folder
from ..frontends.onnx.reader import Model, load_onnx, read_model
from ..frontends.onnx.session import Session
from ..runtime.executable import Executable
from ..runtime.threads import resolve_threads
from ..support.errors import CancelledError, Error, ModelFileError
from .environment import LEVELS, LOGGER, PROVIDERS
from .errors import Fail, InvalidArgument, InvalidProtobuf, NoSuchFile, translated
from .errors import NotImplemented as NotSupported
from .feeds import Feeds
from .metadata import ModelMetadata, NodeArg, node_arg, output_infos
from .options import RunOptions, SessionOptions
from .profiling import Profiler
from .providers import normalized
from .values import IOBinding, OrtValue, OrtValueVector


class InferenceSession:
    """A compiled model, with the interface of onnxruntime's class of this name.

    It is made from a path, bytes or a ModelProto, and compiled at once where possible. Other execution providers than the CPU's, and
    unknown keyword arguments, have no effect. Errors have onnxruntime's classes (`errors.py`).
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        *,
        progress: Callable[[str], object] | bool | None = None,
        **kwargs: Any,
    ) -> None:
        self._progress = progress
        self._options = sess_options if sess_options is not None else SessionOptions()
        self._executables: list[Executable] = []
        self._profiler = Profiler(self._options.profile_file_prefix) if self._options.enable_profiling else None
        unavailable = self._take_providers(providers, provider_options)
        self._unavailable, self._source = unavailable, path_or_bytes
        begin = time.perf_counter()
        with translated(loading=True):
            self._session = Session(_read(path_or_bytes, self._options), self._compiled)
        proto = self._session.model.proto
        self._inputs = [node_arg(i) for i in self._session.inputs]
        self._outputs = [node_arg(o) for o in output_infos(proto)]
        self._initializers = [node_arg(i) for i in proto.graph.input if i not in self._session.inputs]
        self._meta = ModelMetadata(proto)
        self._feeds = Feeds(self._session.inputs)
        self._say(time.perf_counter() - begin, [*unavailable, *self._options.without_effect(), *kwargs])

    def _take_providers(self, providers: Any, provider_options: Any) -> list[str]:
        """Remembers the options of the CPU's provider; returns the names of providers that are not here.

        Raises ValueError for providers of another form than names, or pairs of a name and options.
        """
        asked = normalized(providers, provider_options)
        self._provider_options = {name: asked.get(name, {}) for name in PROVIDERS}
        return [name for name in asked if name not in PROVIDERS]

    def _compiled(self, program: Any) -> Callable[[list[Any]], list[Any]]:
        """Compiles a program of the model; returns the function that runs it: a list of arrays in, a list of arrays out.

        The function records the run if the session is profiled.
        """
        now = self._program(program)

        def run(arguments: list[Any]) -> list[Any]:
            executable = now()
            if executable not in self._executables:
                self._executables.append(executable)
            if self._profiler is not None:
                return self._profiler.run(executable, arguments)
            results = executable(*arguments)
            return list(results) if isinstance(results, tuple) else [results]

        return run

    def _program(self, program: Any) -> Callable[[], Executable]:
        """Compiles a program of the model; returns a function that gives the executable for a call now.

        With `start_fast` that is the fast program first, and later the full one; else it is always the same.
        """
        threads = self._options.intra_op_num_threads or None
        if self._options.start_fast:
            from ..fast_start import FastStart

            start = FastStart(program, threads)
            return lambda: start.executable
        from ..api import compile

        executable = compile(program, threads=threads, progress=self._progress)
        return lambda: executable

    def _say(self, seconds: float, ignored: list[str]) -> None:
        """Writes the line of the log that sums up the session, with what has no effect: a warning if a provider is not here, else an info.

        It writes nothing if the session's own log severity is above that.
        """
        severity = self._options.log_severity_level
        level = logging.WARNING if self._unavailable else logging.INFO
        if severity >= 0 and level < LEVELS[min(severity, len(LEVELS) - 1)]:
            return
        threads = resolve_threads(self._options.intra_op_num_threads or None)[0]
        model = self._session.model
        parts = [f"{model.file}: runs on the CPU with {threads} thread{'s' * (threads != 1)}, ready after {seconds:.1f} s"]
        if self._session.fixed:
            parts.append(f"a program for each value of {', '.join(self._session.fixed)}, which decides shapes")
        if ignored:
            parts.append(f"no effect here: {', '.join(ignored)}")
        LOGGER.log(level, "; ".join(parts))

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None) -> list[Any]:
        """Runs the model; returns the outputs with these names, all of them if None or empty, in their order.

        Raises ShapeError, a ValueError, for a missing input, InvalidArgument for an unknown name and an input that does not fit, TypeError
        for a text as `output_names`, and Fail if `run_options` says to terminate.
        """
        if isinstance(output_names, str):
            raise TypeError("run(): output_names is a list of names, not a text")
        names = list(output_names or self._session.outputs)
        unknown = [n for n in names if n not in self._session.outputs]
        if unknown:
            raise InvalidArgument(f"Invalid output name:{unknown[0]}", facts=[f"the outputs are {', '.join(self._session.outputs)}"])
        feeds = self._feeds.checked(input_feed)
        with translated():
            results = dict(zip(self._session.outputs, self._stoppable(feeds, run_options), strict=True))
        return [results[n] for n in names]

    def _stoppable(self, feeds: dict[str, Any], options: RunOptions | None) -> list[Any]:
        """Runs the model; returns all outputs. Raises Fail if the options said to terminate, before or during the run.

        A run that the options of another one stopped begins again, because it has no effects.
        """
        stops: list[Any] = options.__dict__["stops"] if options is not None else []
        stops.append(self._stop)
        try:
            while options is None or not options.terminate:
                try:
                    results = self._session.run(feeds)
                except CancelledError:
                    continue
                if options is None or not options.terminate:  # it may be set while the first run compiles, when nothing can be stopped
                    return results
            raise Fail("Exiting due to terminate flag being set to true.")
        finally:
            stops.remove(self._stop)

    def _stop(self) -> None:
        """Stops all runs of the session: those that are told to terminate end, the others begin again."""
        for executable in self._executables:
            executable.cancel()

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Any, Any, str], object],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Starts a run in another thread, which calls `callback(results, user_data, error)`.

        `error` is the text of the exception, with no results, or "" if there is none.
        """

        def work() -> None:
            try:
                results, problem = self.run(output_names, input_feed, run_options), ""
            except Exception as error:
                results, problem = [], str(error) or type(error).__name__
            callback(results, user_data, problem)

        threading.Thread(target=work, name="pliant.onnxruntime.run_async", daemon=True).start()

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue], run_options: RunOptions | None = None
    ) -> list[OrtValue]:
        """Runs the model on OrtValues by name, as `run` does; returns OrtValues."""
        return [OrtValue(v) for v in self.run(output_names, input_dict_ort_values, run_options)]

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Any,
    ) -> None:
        """Runs the model on values in the order of `feed_names`; appends the outputs `fetch_names` to `fetches`.

        The devices have no effect. Raises ValueError for names and values of different number.
        """
        fetches.extend(self.run_with_ort_values(fetch_names, dict(zip(feed_names, feeds, strict=True)), run_options))

    def io_binding(self) -> IOBinding:
        """Returns a new object that binds inputs and outputs of this session to memory."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Runs the model with what is bound; raises ValueError for a binding of another session."""
        if iobinding._session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        iobinding.run(run_options)

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Returns a new tensor of zeros of this shape and type; raises NotImplemented for a device other than "cpu"."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    def get_inputs(self) -> list[NodeArg]:
        """Returns the records of the inputs without a value in the file, in the order of the model."""
        return self._inputs

    def get_outputs(self) -> list[NodeArg]:
        """Returns the records of the outputs, in the order of the model."""
        return self._outputs

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Returns the records of the inputs that have a value in the file."""
        return self._initializers

    def get_modelmeta(self) -> ModelMetadata:
        """Returns the facts that the model file has about itself."""
        return self._meta

    def get_session_options(self) -> SessionOptions:
        """Returns the options of the session: the object itself, not a copy."""
        return self._options

    def get_providers(self) -> list[str]:
        """Returns the names of the execution providers in use: only "CPUExecutionProvider"."""
        return list(PROVIDERS)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Returns the options of the CPU's execution provider, by its name; they have no effect."""
        return self._provider_options

    def set_providers(self, providers: Sequence[Any] | None = None, provider_options: Sequence[Any] | None = None) -> None:
        """Takes other execution providers; the CPU stays in use, and those that are not here are written to the log."""
        self._unavailable = self._take_providers(providers, provider_options)
        if self._unavailable:
            self._say(0.0, self._unavailable)

    def enable_fallback(self) -> None:
        """Returns at once: no execution provider can fail."""

    def disable_fallback(self) -> None:
        """Returns at once: no execution provider can fail."""

    def end_profiling(self) -> str:
        """Writes the trace of the runs since the session began, ends profiling, and returns the file's name; "" if profiling is not on."""
        if self._profiler is None:
            return ""
        profiler, self._profiler = self._profiler, None
        return profiler.save()

    def get_profiling_start_time_ns(self) -> int:
        """Returns when profiling began, in nanoseconds of a monotonic clock; 0 if it is not on."""
        return self._profiler.start if self._profiler is not None else 0


def _read(source: Any, options: SessionOptions) -> Model:
    """Returns the model of a path, of bytes or of a ModelProto (which stays as it is), with the dims and initializers of the options.

    Raises TypeError for another source, NoSuchFile and InvalidProtobuf for files that are not there or no models, NotImplemented for
    onnxruntime's own format.
    """
    if isinstance(source, str | os.PathLike) and not os.path.exists(source):
        raise NoSuchFile(f"Load model from {os.fspath(source)} failed:Load model {os.fspath(source)} failed. File doesn't exist")
    _refuse_ort_format(source)
    try:
        model = read_model(source)
    except ModelFileError as error:
        raise InvalidProtobuf(error.what, notes=error.places, facts=error.facts, help=error.help) from error
    except Error as error:
        if type(error) is Error:  # the source is no model
            raise TypeError(f"Unable to load from type '{type(source)}'") from error
        raise
    by_name, by_denotation = options.fixed_dims
    if by_name or by_denotation or options.initializers:
        proto = load_onnx().ModelProto()
        proto.CopyFrom(model.proto)
        _fix_dims(proto, by_name, by_denotation)
        _replace_initializers(proto, options.initializers)
        model = replace(model, proto=proto)
    return replace(model, folder=Folder(options.external_folder)) if model.folder is None and options.external_folder else model


def _refuse_ort_format(source: Any) -> None:
    """Raises NotImplemented if a file or bytes hold a model in onnxruntime's own format; else does nothing."""
    if isinstance(source, str | os.PathLike):
        with open(source, "rb") as file:
            head = file.read(8)
    else:
        head = bytes(source[:8]) if isinstance(source, bytes | bytearray | memoryview) else b""
    if head[4:8] == b"ORTM":
        _raise_ort_format()


def _raise_ort_format() -> NoReturn:
    raise NotSupported("the model has onnxruntime's own format (.ort)", help="pass the ONNX model that it was made from")


def _fix_dims(proto: Any, by_name: Mapping[str, int], by_denotation: Mapping[str, int]) -> None:
    """Gives dims of the inputs that have one of these names or denotations their values, the name first; dims with a size keep it."""
    for info in proto.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            value = by_name.get(dim.dim_param, by_denotation.get(dim.denotation))
            if value is not None and not dim.HasField("dim_value"):
                dim.dim_value = value


def _replace_initializers(proto: Any, arrays: Mapping[str, Any]) -> None:
    """Replaces initializers of a ModelProto by arrays; raises InvalidArgument for a name that the model does not have."""
    known = {t.name: t for t in proto.graph.initializer}
    for name, array in arrays.items():
        if name not in known:
            raise InvalidArgument(f'the model has no initializer "{name}"')
        known[name].CopyFrom(load_onnx().numpy_helper.from_array(array, name))
