from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnx import TensorProto

def from_array(array: NDArray[Any] | np.generic, name: str) -> TensorProto: ...
