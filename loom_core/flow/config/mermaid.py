"""Mermaid flowchart of a flow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig
    from loom_core.flow.config.models_endpoint import Criterion
    from loom_core.flow.config.models_step import Action, StepConfig

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


def render_mermaid(flow: FlowConfig) -> str:
    """Render a flow as a flowchart: its steps, their successors, and parallel branches.

    Solid lines follow a success, dotted ones a failure.
    """
    drawing = _Diagram()
    drawing.add_line(f"%% {_plain(flow.title)}")
    drawing.add_line("flowchart TD")
    drawing.add_line(f"  start(({_quote(flow.title)}))")
    if flow.steps:
        first = drawing.add_steps(flow.steps, end="finish")
        drawing.add_line(f"  start --> {first}")
    else:
        request = flow.endpoint
        text = f"{request.method} {request.url}" if request else "POST flow_url"
        drawing.add_line(f"  request[{_quote(text)}]")
        drawing.add_line("  start --> request --> finish")
    drawing.add_line('  finish((("End")))')
    return "\n".join(drawing.lines) + "\n"


class _Diagram:
    """Lines of a flowchart. Step ids may be in any script, so nodes are numbered."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._nodes = 0

    def add_line(self, text: str) -> None:
        self.lines.append(text)

    def add_steps(self, steps: Sequence[StepConfig], *, end: str) -> str:
        """Draw a list of steps, and return the name of its first node."""
        names = {step.step_id: self._next_node_id() for step in steps}
        for index, step in enumerate(steps):
            following = names[steps[index + 1].step_id] if index + 1 < len(steps) else end
            name = names[step.step_id]
            inside = [*step.inner_lists()]
            leaving = self._inner_lists(step, name) if inside else name
            if not inside:
                opening, closing = _SHAPES.get(step.kind, _PLAIN)
                self.add_line(f"  {name}{opening}{_quote(_label(step))}{closing}")
            self._successes(step, leaving, following, names)
            self._failures(step, leaving, names)
        return next(iter(names.values()))

    def _next_node_id(self) -> str:
        self._nodes += 1
        return f"n{self._nodes}"

    def _inner_lists(self, step: StepConfig, name: str) -> str:
        """Draw the lists of steps inside a step, and return the name of the node that joins them."""
        joined = self._next_node_id()
        self.add_line(f"  {name}>{_quote(step.step_id)}]")
        self.add_line(f"  subgraph s{name}[{_quote(step.description or step.step_id)}]")
        firsts = [self.add_steps(steps, end=joined) for _, steps in step.inner_lists()]
        self.add_line("  end")
        self.add_line(f"  {joined}(({'+' if step.parallel else '·'}))")
        labels = [_edge(_conditions(case.when or ()) or "else") for case in step.switch]
        if step.for_each is not None:
            labels.append(_edge(f"each {step.for_each.in_}"))
        for first, label in zip_longest(firsts, labels, fillvalue=""):
            self.add_line(f"  {name} -->{label} {first}")
        if step.switch and step.switch[-1].when is not None:
            self.add_line(f"  {name} -->{_edge('else')} {joined}")
        return joined

    def _successes(self, step: StepConfig, name: str, following: str, names: dict[str, str]) -> None:
        always = False
        for action in step.on_success:
            target = names.get(action.step_id, following) if action.type == "goto" else "finish"
            self.add_line(f"  {name} -->{_edge_label(action)} {target}")
            always = always or not action.criteria
        if not always:
            self.add_line(f"  {name} --> {following}")

    def _failures(self, step: StepConfig, name: str, names: dict[str, str]) -> None:
        for action in step.on_failure:
            if action.type == "retry":
                self.add_line(f"  {name} -.->{_edge_label(action, f'retry ×{action.retry_limit}')} {name}")
            else:
                target = names.get(action.step_id, "finish") if action.type == "goto" else "finish"
                self.add_line(f"  {name} -.->{_edge_label(action)} {target}")
        if step.confirm and not step.on_failure:
            self.add_line(f"  {name} -.->|no| finish")


def _label(step: StepConfig) -> str:
    """Return the label of a step."""
    what = ""
    if step.operation is not None:
        what = f"{step.operation.method} {step.operation.url}"
    elif step.ask is not None:
        what = step.ask.question
    elif step.confirm and not step.tool:
        what = step.confirm.question
    elif step.wait_for is not None:
        what = step.wait_for.event or step.wait_for.until or f"{step.wait_for.seconds:g} s"
    elif step.handover is not None:
        what = step.handover.about or step.handover.queue or step.description
    elif step.llm is not None:
        what = step.llm.prompt
    else:
        what = step.tool or step.workflow_id or step.say or step.description
    return f"{step.step_id}: {what}" if what else step.step_id


def _edge_label(action: Action, otherwise: str = "") -> str:
    return _edge(" ".join(filter(None, [otherwise or action.name, _conditions(action.criteria)])))


def _edge(text: str) -> str:
    """Return a text as the label of an edge."""
    return f"|{_quote(text)}|" if text else ""


def _conditions(criteria: Sequence[Criterion]) -> str:
    return " && ".join(each.condition for each in criteria)


def _plain(text: str) -> str:
    """Return a text on one line, shortened."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LENGTH else f"{line[: _MAX_LENGTH - 1]}…"


def _quote(text: str) -> str:
    """Quote a text; characters with a meaning in Mermaid become character references."""
    return '"' + "".join(f"#{ord(each)};" if each in '"#;<>&`' else each for each in _plain(text)) + '"'
