"""The encoder of multilingual-e5-small: its graph, shipped without weights, filled from the weights file."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from loom_core.embedding.local_models.e5_weights import FEED_FORWARD, GELU_FLOOR, HIDDEN, LAYERS
from loom_core.embedding.local_models.onnx_session import open_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.local_models.e5_weights import E5Weights
    from loom_core.embedding.local_models.onnx_session import InferenceSession, Weight

__all__ = ["IntegerForm", "best_form", "open_e5_graph"]

IntegerForm = Literal["int8", "uint8"]
"""How the weights' integers are held. Both give the same vectors: their products are summed exactly."""


def open_e5_graph(weights: E5Weights, form: IntegerForm) -> InferenceSession:
    """A session over the encoder: `x`, embeddings (1, tokens, 384), to `y`, their mean state (1, 384).

    Raises:
        EmbeddingError: onnxruntime is missing or cannot run it.
    """
    graph = Path(__file__).parents[1] / "data" / f"e5_{form}.onnx"
    return open_session(
        graph.read_bytes(),
        model="multilingual-e5-small",
        weights=_graph_weights(weights, form),
        optimise=False,
    )


def best_form() -> IntegerForm:
    """The form that is exact and fast on this processor.

    `int8` needs an x86 processor that sums products of unsigned and signed bytes without saturation (VNNI).
    `uint8` is right everywhere, and at most slower.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return "uint8"
    try:
        description = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "uint8"
    return "int8" if "avx512_vnni" in description or "avx_vnni" in description else "uint8"


def _graph_weights(weights: E5Weights, form: IntegerForm) -> Iterator[tuple[str, Weight]]:
    """Every weight the graph refers to, by name."""
    for name in ("emb.ln.w", "emb.ln.b"):
        yield name, weights.tensor(name)
    for layer in (f"l{number}" for number in range(LAYERS)):
        for part in ("q", "k", "v", "ao", "fi", "fo"):
            name = f"{layer}.{part}"
            inputs = FEED_FORWARD if part == "fo" else HIDDEN
            integers, scale = _quantise(weights.tensor(f"{name}.w").reshape(-1, inputs))
            bias = weights.tensor(f"{name}.b")
            if part == "fo":
                # The graph adds GELU_FLOOR to every input of this product; what that adds is taken off.
                bias = bias - (GELU_FLOOR * scale * integers.sum(axis=0, dtype="i4")).astype("f4")
            yield f"{name}.w", integers if form == "int8" else integers.view("u1") ^ 0x80  # plus 128
            yield f"{name}.s", scale
            yield f"{name}.b", bias
        for name in (f"{layer}.aln.w", f"{layer}.aln.b", f"{layer}.oln.w", f"{layer}.oln.b"):
            yield name, weights.tensor(name)


def _quantise(matrix: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """A matrix (outputs, inputs) as 8-bit integers (inputs, outputs) and a scale for each output."""
    import numpy as np

    scale = np.abs(matrix).max(axis=1) / np.float32(127)
    return np.ascontiguousarray(np.rint(matrix / scale[:, None]).astype(np.int8).T), scale
