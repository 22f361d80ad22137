"""The features that are compared, and the functions that show them, as text."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple


class Feature(NamedTuple):
    """A row of the table: its title, and what the function of each framework returns."""

    title: str
    outcome: str


FEATURES = {
    "tool_retry": Feature("A tool that fails at first", "Rain, 24 °C."),
    "context": Feature("Dependencies of tools and instructions", "Anna, 20 days."),
    "guard_input": Feature("Guardrail on the input", "refused"),
    "guard_output": Feature("Guardrail on the answer, which asks again", "Please look at the shelf."),
    "structured": Feature("Validated output, which is asked for again", "5 stars"),
    "session": Feature("Conversation of several runs", "Anna."),
    "user_memory": Feature("Memory of a user across conversations", "Rice."),
    "agents": Feature("An agent as a tool", "In 589."),
    "approval": Feature("Approval of a call", "It is paid."),
    "image": Feature("An image with the question", "A graph."),
    "fork": Feature("Fork of a run, with another result of a call", "To the museum. To the park."),
    "streaming": Feature("Streaming", "Once upon a time there was a loom."),
    "durable": Feature("A run that survives kill -9", "Your table is booked. once "),
    "mcp": Feature("Tools of an MCP server", "loom loom"),
}
"""The features by the names of the functions."""

MODULES = {
    "Loom": "with_loom",
    "pydantic-ai": "with_pydantic_ai",
    "openai-agents": "with_openai_agents",
    "LangGraph": "with_langgraph",
}
"""The modules of the frameworks."""


class Example(NamedTuple):
    """A function that shows a feature.

    Attributes:
        code: its source.
        lines: number of lines of its body that are neither docstring, blank nor a comment.
    """

    code: str
    lines: int


def read_examples(module: str) -> dict[str, Example]:
    """Read the examples of a module; a feature that the framework does not have is not among them."""
    lines = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8").splitlines()
    found: dict[str, Example] = {}
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.AsyncFunctionDef) and node.name in FEATURES:
            body = [line.strip() for line in lines[node.body[0].end_lineno : node.end_lineno]]
            count = sum(bool(line) and not line.startswith("#") for line in body)
            found[node.name] = Example("\n".join(lines[node.lineno - 1 : node.end_lineno]), count)
    return found
