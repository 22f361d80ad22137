"""Build the weightless ONNX graphs of multilingual-e5-small that ship in `loom_core/embedding/data`.

Run by hand after a change to the graph; needs the `onnx` package, which nothing else in Loom does:

    uv run --with onnx python tools/build_e5_graph.py

The graphs hold the model's structure and no numbers: every weight is a reference by name, filled in at
load from the weights file (`loom_core/embedding/local_models/e5.py` uses the same names). There are
two, equal but for the type of the integer weights, see `WEIGHT_FORMS`.

Design, measured on two x86 cores with 200-token passages:

- Post-LN BERT, one text a run, mean pooling included. Built from exactly the kernels that are fast on
  CPU, to be run with graph optimisation off: `SkipLayerNormalization`, which the optimiser would put in
  place of `Add` and `LayerNormalization`, takes five times as long as both.
- Weights are 8-bit integers, one scale for each output channel. Activations are quantised as they come,
  one scale for the whole text, except at the output of the feed-forward layer: a few tokens are far
  larger than the others there, so each token has its own scale.
- GELU never goes below -0.17. Adding 0.17 makes its output positive, so that all 8 bits are used; what
  this adds to the product is a constant that the loader folds into the bias (`l*.fo.b`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto, helper, numpy_helper

from loom_core.embedding.local_models.e5_weights import FEED_FORWARD, GELU_FLOOR, HEADS, HIDDEN, LAYERS

EPSILON = 1e-12
MICROSOFT = "com.microsoft"

WEIGHT_FORMS = {
    # File name: element type, and the integer that stands for zero.
    "e5_int8.onnx": (TensorProto.INT8, np.int8(0)),
    # The same numbers plus 128. x86 without VNNI multiplies unsigned by signed bytes with saturating
    # 16-bit sums, which is wrong for 8-bit weights; unsigned by unsigned is exact everywhere.
    "e5_uint8.onnx": (TensorProto.UINT8, np.uint8(128)),
}


class Graph:
    """Builder of an ONNX graph: nodes in order, constants, and weights by name only."""

    def __init__(self, weight_type: int, zero: np.integer) -> None:
        self._weight_type = weight_type
        self._nodes: list[NodeProto] = []
        self._initializers: list[TensorProto] = []
        self._zero = self.constant("zero", zero)

    def constant(self, name: str, value: np.generic | np.ndarray) -> str:
        """Add a constant; gives its name."""
        self._initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, name: str, *shape: int, integer: bool = False) -> str:
        """Add a weight that is filled in at load; gives its name."""
        tensor = TensorProto(name=name, dims=shape, data_location=TensorProto.EXTERNAL)
        tensor.data_type = self._weight_type if integer else TensorProto.FLOAT
        tensor.external_data.append(StringStringEntryProto(key="location", value="-"))
        self._initializers.append(tensor)
        return name

    def node(self, op: str, inputs: list[str], *outputs: str, domain: str = "", **attributes: object) -> str:
        """Add a node; gives the name of its first output."""
        self._nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def layer_norm(self, x: str, name: str) -> str:
        """Layer normalisation over the hidden size."""
        inputs = [x, self.weight(f"{name}.w", HIDDEN), self.weight(f"{name}.b", HIDDEN)]
        return self.node("LayerNormalization", inputs, f"{name}.out", axis=-1, epsilon=EPSILON)

    def linear(self, x: str, name: str, inner: int, outer: int) -> str:
        """Product x · W + b, with x quantised by one scale for the whole text."""
        inputs = [x, *self._integer_weight(name, inner, outer), self._zero, self.weight(f"{name}.b", outer)]
        return self.node("DynamicQuantizeMatMul", inputs, f"{name}.out", domain=MICROSOFT)

    def linear_quantised(self, x: tuple[str, str, str], name: str, inner: int, outer: int) -> str:
        """Product x · W + b, with x quantised before: integers, scale, zero point."""
        values, scale, zero = x
        weight, weight_scale = self._integer_weight(name, inner, outer)
        inputs = [values, weight, scale, weight_scale, zero, self._zero, self.weight(f"{name}.b", outer)]
        return self.node("MatMulIntegerToFloat", inputs, f"{name}.out", domain=MICROSOFT)

    def linear_by_token(self, x: str, name: str, inner: int, outer: int) -> str:
        """Product x · W + b for an x that is at least -0.17, with a scale for each token.

        With m = max(x) + 0.17, the integers are round((x + 0.17) · 255 / m); the cast cuts, so 0.5 is added.
        """
        top = self.node("ReduceMax", [x, "last_axis"], f"{name}.top", keepdims=1)
        span = self.node("Add", [top, "gelu_floor"], f"{name}.span")
        scale = self.node("Mul", [span, "1/255"], f"{name}.scale")
        factor = self.node("Div", ["255", span], f"{name}.factor")
        offset = self.node("Mul", [factor, "gelu_floor"], f"{name}.offset")
        offset = self.node("Add", [offset, "0.5"], f"{name}.offset_half")
        scaled = self.node("Mul", [x, factor], f"{name}.scaled")
        shifted = self.node("Add", [scaled, offset], f"{name}.shifted")
        values = self.node("Cast", [shifted], f"{name}.values", to=TensorProto.UINT8)
        weight, weight_scale = self._integer_weight(name, inner, outer)
        inputs = [values, weight, scale, weight_scale, "", self._zero]
        product = self.node("MatMulIntegerToFloat", inputs, f"{name}.product", domain=MICROSOFT)
        return self.node("Add", [product, self.weight(f"{name}.b", outer)], f"{name}.out")

    def model(self, source: str, target: str) -> ModelProto:
        """Return the finished model with one input and one output."""
        graph: GraphProto = helper.make_graph(
            self._nodes,
            "multilingual-e5-small",
            [helper.make_tensor_value_info(source, TensorProto.FLOAT, [1, "tokens", HIDDEN])],
            [helper.make_tensor_value_info(target, TensorProto.FLOAT, [1, HIDDEN])],
            self._initializers,
        )
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="loom")

    def _integer_weight(self, name: str, inner: int, outer: int) -> tuple[str, str]:
        return self.weight(f"{name}.w", inner, outer, integer=True), self.weight(f"{name}.s", outer)


def build(weight_type: int, zero: np.integer) -> ModelProto:
    """Build the encoder: from `x`, a text's embeddings (1, tokens, 384), to `y`, the mean state (1, 384)."""
    g = Graph(weight_type, zero)
    g.constant("last_axis", np.array([-1], np.int64))
    g.constant("token_axis", np.array([1], np.int64))
    g.constant("gelu_floor", np.float32(GELU_FLOOR))
    g.constant("1/255", np.float32(1 / 255))
    g.constant("255", np.float32(255))
    g.constant("0.5", np.float32(0.5))
    x = g.layer_norm("x", "emb.ln")
    for layer in (f"l{i}" for i in range(LAYERS)):
        quantised = (f"{layer}.x", f"{layer}.x_scale", f"{layer}.x_zero")
        g.node("DynamicQuantizeLinear", [x], *quantised)
        queries, keys, values = (g.linear_quantised(quantised, f"{layer}.{c}", HIDDEN, HIDDEN) for c in "qkv")
        context = g.node(
            "MultiHeadAttention",
            [queries, keys, values],
            f"{layer}.context",
            domain=MICROSOFT,
            num_heads=HEADS,
        )
        attention = g.linear(context, f"{layer}.ao", HIDDEN, HIDDEN)
        x = g.layer_norm(g.node("Add", [attention, x], f"{layer}.aln.in"), f"{layer}.aln")
        inner = g.linear(x, f"{layer}.fi", HIDDEN, FEED_FORWARD)
        inner = g.node("Gelu", [inner], f"{layer}.gelu", domain=MICROSOFT)
        outer = g.linear_by_token(inner, f"{layer}.fo", FEED_FORWARD, HIDDEN)
        x = g.layer_norm(g.node("Add", [outer, x], f"{layer}.oln.in"), f"{layer}.oln")
    g.node("ReduceMean", [x, "token_axis"], "y", keepdims=0)
    return g.model("x", "y")


def main() -> None:
    """Write both graphs."""
    default = Path(__file__).resolve().parent.parent / "loom_core" / "embedding" / "data"
    parser = argparse.ArgumentParser(description="Build the weightless graphs of multilingual-e5-small.")
    parser.add_argument("--target", type=Path, default=default, help="folder to write to")
    target: Path = parser.parse_args().target
    for name, (weight_type, zero) in WEIGHT_FORMS.items():
        model = build(weight_type, zero)
        data = model.SerializeToString()
        (target / name).write_bytes(data)
        print(f"{name}: {len(data)} bytes, {len(model.graph.node)} nodes")


if __name__ == "__main__":
    main()
