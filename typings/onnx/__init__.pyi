"""What `tools/build_e5_graph.py` uses of onnx, which is installed for that tool only."""

from collections.abc import Sequence

from onnx import helper as helper
from onnx import numpy_helper as numpy_helper

class StringStringEntryProto:
    def __init__(self, *, key: str, value: str) -> None: ...

class TensorProto:
    FLOAT: int
    INT8: int
    UINT8: int
    EXTERNAL: int
    data_type: int
    external_data: list[StringStringEntryProto]
    def __init__(self, *, name: str, dims: Sequence[int], data_location: int) -> None: ...

class NodeProto: ...
class ValueInfoProto: ...
class OperatorSetIdProto: ...

class GraphProto:
    node: Sequence[NodeProto]

class ModelProto:
    graph: GraphProto
    def SerializeToString(self) -> bytes: ...
