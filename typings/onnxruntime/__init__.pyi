"""What Loom uses of onnxruntime, which ships no types."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__version__: str

class GraphOptimizationLevel:
    ORT_DISABLE_ALL: GraphOptimizationLevel
    ORT_ENABLE_ALL: GraphOptimizationLevel

class OrtValue:
    @staticmethod
    def ortvalue_from_numpy(numpy_obj: NDArray[Any]) -> OrtValue: ...

class SessionOptions:
    intra_op_num_threads: int
    inter_op_num_threads: int
    log_severity_level: int
    graph_optimization_level: GraphOptimizationLevel
    def add_session_config_entry(self, key: str, value: str) -> None: ...
    def add_external_initializers(self, names: list[str], values: list[OrtValue]) -> None: ...

class NodeArg:
    name: str
    type: str

class InferenceSession:
    def __init__(
        self, path_or_bytes: str | bytes, sess_options: SessionOptions, *, providers: Sequence[str]
    ) -> None: ...
    def run(
        self, output_names: Sequence[str], input_feed: Mapping[str, NDArray[Any]]
    ) -> list[NDArray[np.float32]]: ...
    def get_inputs(self) -> list[NodeArg]: ...
    def get_outputs(self) -> list[NodeArg]: ...

def disable_telemetry_events() -> None: ...
