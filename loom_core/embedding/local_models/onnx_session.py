"""onnxruntime sessions: one thread per run, concurrent runs, Loom's errors.

The only module that imports onnxruntime (ruff's TID251 refuses others), so that its telemetry is off wherever
Loom uses it: importing `loom_core` sets its switch first, and `disable_telemetry_events` is for the event
tracing of Windows, which has no switch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from loom_core.errors import EmbeddingError
from loom_core.installation import how_to_install

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from onnxruntime import InferenceSession

    Weight: TypeAlias = NDArray[np.float32] | NDArray[np.int8] | NDArray[np.uint8]

__all__ = ["open_session", "run_session"]


def open_session(
    graph: bytes | Path, *, model: str, weights: Iterable[tuple[str, Weight]] = (), optimise: bool = True
) -> InferenceSession:
    """Open a CPU session that runs on the calling thread; several threads may call it.

    Args:
        graph: the ONNX file, or its path; a graph with weights in a separate file needs its path.
        model: name of the model, for errors.
        weights: external weights that the graph refers to by name.
        optimise: let onnxruntime rewrite the graph; false for one made of its kernels already.

    Raises:
        EmbeddingError: onnxruntime is missing, or cannot run this graph.
    """
    try:
        import onnxruntime as ort
    except ImportError as error:
        raise EmbeddingError(
            f"The model {model} needs onnxruntime, which cannot be imported: {error}.",
            advice=how_to_install("onnxruntime>=1.22"),
        ) from error

    ort.disable_telemetry_events()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only; they are also raised
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
    # On x86 without VNNI, have the optimiser turn signed weights into unsigned ones: their products with
    # unsigned bytes are summed exactly, those of signed ones are cut off at 16 bits.
    options.add_session_config_entry("session.x64quantprecision", "1")
    names: list[str] = []
    values: list[ort.OrtValue] = []
    for name, weight in weights:
        names.append(name)
        values.append(ort.OrtValue.ortvalue_from_numpy(weight))
    try:
        if names:
            options.add_external_initializers(names, values)
        source = graph if isinstance(graph, bytes) else str(graph)
        return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except _errors() as error:
        raise EmbeddingError(
            f"onnxruntime {ort.__version__} cannot run the model {model}: {error}",
            advice="Run: pip install --upgrade onnxruntime",
        ) from error


def run_session(
    session: InferenceSession,
    output: str,
    inputs: Mapping[str, NDArray[np.float32] | NDArray[np.int64]],
    *,
    model: str,
) -> NDArray[np.float32]:
    """Run the session, and return one output.

    Raises:
        EmbeddingError: the run failed.
    """
    try:
        return session.run([output], inputs)[0]
    except _errors() as error:
        raise EmbeddingError(
            f"The model {model} failed: {error}",
            advice="If memory ran out, use fewer threads or shorter passages.",
        ) from error


def _errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of onnxruntime; these have no base in common."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return (
        state.EPFail,
        state.Fail,
        state.InvalidArgument,
        state.InvalidGraph,
        state.InvalidProtobuf,
        state.NoSuchFile,
        state.NotImplemented,
        state.RuntimeException,
    )
