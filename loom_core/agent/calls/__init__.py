"""The tool calls of a model's answer, and the runs that make them."""
