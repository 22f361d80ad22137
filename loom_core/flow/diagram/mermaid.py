"""Mermaid flowchart of a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom_core.flow.diagram.shape import FlowShape, StepListShape, StepShape, Transition

__all__ = ["render_mermaid"]

_MAX_LENGTH = 60
_SHAPES = {
    "llm": ("[\\", "\\]"),
    "say": ("(", ")"),
    "ask": ("[/", "/]"),
    "confirm": ("{", "}"),
    "none": ("{{", "}}"),
    "workflow": ("[[", "]]"),
    "tool": ("([", "])"),
    "wait_for": ("[/", "\\]"),
    "handover": ("[\\", "/]"),
}
_PLAIN = ("[", "]")


def render_mermaid(flow: FlowShape) -> str:
    """Render a flow as a flowchart: its steps, their successors, and parallel branches.

    Solid lines follow a success, dotted ones a failure.
    """
    chart = _Flowchart()
    chart.add_line(f"%% {_plain(flow.title)}")
    chart.add_line("flowchart TD")
    chart.add_line(f"  start(({_quote(flow.title)}))")
    chart.add_line(f"  start --> {chart.add_steps(flow.steps, end='finish')}")
    chart.add_line('  finish((("End")))')
    return "\n".join(chart.lines) + "\n"


class _Flowchart:
    """Lines of a flowchart. Step ids may be in any script, so nodes are numbered."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._nodes = 0

    def add_line(self, text: str) -> None:
        self.lines.append(text)

    def add_steps(self, inner: StepListShape, *, end: str) -> str:
        """Draw a list of steps, and return the name of its first node; `end`, if it has no steps."""
        names = {step.step_id: self._next_node_id() for step in inner.steps}
        for step in inner.steps:
            name = names[step.step_id]
            if step.lists:
                leaving = self._add_lists(step, name)
            else:
                leaving = name
                opening, closing = _SHAPES.get(step.kind, _PLAIN)
                self.add_line(f"  {name}{opening}{_quote(_label(step))}{closing}")
            for each in step.transitions:
                self._add_transition(each, leaving, names, end)
        return next(iter(names.values()), end)

    def _next_node_id(self) -> str:
        self._nodes += 1
        return f"n{self._nodes}"

    def _add_lists(self, step: StepShape, name: str) -> str:
        """Draw the lists of steps inside a step, and return the name of the node that joins them."""
        joined = self._next_node_id()
        self.add_line(f"  {name}>{_quote(step.step_id)}]")
        self.add_line(f"  subgraph s{name}[{_quote(step.description or step.step_id)}]")
        firsts = [self.add_steps(inner, end=joined) for inner in step.lists]
        self.add_line("  end")
        self.add_line(f"  {joined}(({'+' if step.kind == 'parallel' else '·'}))")
        for first, inner in zip(firsts, step.lists, strict=True):
            self.add_line(f"  {name} -->{_edge(_condition(inner))} {first}")
        return joined

    def _add_transition(self, way: Transition, name: str, names: dict[str, str], end: str) -> None:
        target = "finish" if way.type == "no" else names.get(way.to, end)
        label = "no" if way.type == "no" else way.condition
        if way.type == "retry":
            target, label = name, f"retry ×{way.limit} {way.condition}".strip()
        self.add_line(f"  {name} {'-.->' if way.after_failure else '-->'}{_edge(label)} {target}")


def _label(step: StepShape) -> str:
    """Return the label of a step."""
    text = step.text or step.description
    return f"{step.step_id}: {text}" if text else step.step_id


def _condition(inner: StepListShape) -> str:
    """Return the condition of a list of steps."""
    match inner.role:
        case "case" | "else":
            return inner.condition or "else"
        case "item":
            return f"each {inner.condition}"
        case _:
            return ""


def _edge(text: str) -> str:
    """Return a text as the label of an edge."""
    return f"|{_quote(text)}|" if text else ""


def _plain(text: str) -> str:
    """Return a text on one line, shortened."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LENGTH else f"{line[: _MAX_LENGTH - 1]}…"


def _quote(text: str) -> str:
    """Quote a text; characters with a meaning in Mermaid become character references."""
    return '"' + "".join(f"#{ord(each)};" if each in '"#;<>&`' else each for each in _plain(text)) + '"'
