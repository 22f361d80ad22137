from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import loom_core.embedding
from loom_core.embedding.local_models.e5 import open_e5_graph
from loom_core.embedding.local_models.onnx_session import open_session, run_session
from loom_core.errors import EmbeddingError

if TYPE_CHECKING:
    from loom_core.embedding.local_models.e5_weights import E5Weights

GRAPH = Path(loom_core.embedding.__file__).with_name("data") / "e5_int8.onnx"


def test_a_graph_that_is_none_is_an_embedding_error():
    with pytest.raises(EmbeddingError, match="cannot run the model toy"):
        open_session(b"not a graph", model="toy")


def test_a_graph_without_its_weights_is_an_embedding_error():
    with pytest.raises(EmbeddingError, match="cannot run the model toy"):
        open_session(GRAPH.read_bytes(), model="toy", optimise=False)


def test_a_failed_run_is_an_embedding_error(e5_weights: E5Weights):
    session = open_e5_graph(e5_weights, "int8")
    with pytest.raises(EmbeddingError, match="The model toy failed"):
        run_session(session, "y", {"x": np.zeros((1, 2, 3), dtype=np.float32)}, model="toy")


def test_without_onnxruntime_the_error_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EmbeddingError, match="pip install 'onnxruntime"):
        open_session(b"", model="toy")


def test_the_shipped_graphs_hold_no_weights():
    for form in ("int8", "uint8"):
        assert GRAPH.with_name(f"e5_{form}.onnx").stat().st_size <= 40_000
