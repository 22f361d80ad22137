"""Shape of a flow: its steps, the lists inside them, their transitions; and its Mermaid flowchart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from loom_core.flow.executor.definition import flow_steps

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig, FlowFile
    from loom_core.flow.config.models_endpoint import Criterion
    from loom_core.flow.config.models_step import Action, StepConfig, StepKind

__all__ = ["FlowShape", "StepListShape", "StepShape", "Transition", "render_mermaid", "shape_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A transition from a step to another one of its list, or to the end of the list.

    Attributes:
        type: `next`: the default after a success, or an action that does the same; `goto`, `end` and `retry`:
            another action; `no`: the default after a person's no, which ends the run.
        to: id of the next step; empty for the end of the list, and where `retry` executes no other step.
        after_failure: whether it follows a failure.
        action: name of the action in the journal; empty for a default.
        condition: name and criteria of the action.
        limit: maximum number of retries.
    """

    type: Literal["next", "goto", "end", "retry", "no"]
    to: str = ""
    after_failure: bool = False
    action: str = ""
    condition: str = ""
    limit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """A step.

    Attributes:
        path: its id, preceded by the path of its list: `look/0/slots`, as in the run's events; the item of
            `for_each` has the number 0.
        step_id: its id.
        kind: its kind.
        text: its action, such as the request or the question.
        description: its purpose.
        transitions: transitions from it, in the order in which they are tried.
        lists: the lists of steps inside it.
    """

    path: str
    step_id: str
    kind: StepKind
    text: str
    description: str
    transitions: Sequence[Transition]
    lists: Sequence[StepListShape]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepListShape:
    """A list of steps.

    Attributes:
        path: path of its steps, up to their ids: empty for the flow, `look/0/` for a branch.
        role: `flow`, `branch` of parallel, `case` of switch, `else`: no case applies and nothing is done, or
            `item` of for_each.
        condition: the criteria of a case, empty for the default one; the list of the items.
        steps: its steps.
    """

    path: str
    role: Literal["flow", "branch", "case", "else", "item"]
    condition: str = ""
    steps: Sequence[StepShape] = ()

    def all_steps(self) -> Iterator[StepShape]:
        """Yield the steps, those inside of others included."""
        for step in self.steps:
            yield step
            for inner in step.lists:
                yield from inner.all_steps()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowShape:
    """A flow; its only request is its step if it has none."""

    flow_id: str
    title: str
    steps: StepListShape


def shape_of(file: FlowFile, flow: FlowConfig) -> FlowShape:
    """Return the shape of a flow of a file."""
    steps = _list_shape("", "flow", flow_steps(file, flow))
    return FlowShape(flow_id=flow.flow_id, title=flow.title, steps=steps)


def _list_shape(
    path: str,
    role: Literal["flow", "branch", "case", "item"],
    steps: Sequence[StepConfig],
    condition: str = "",
) -> StepListShape:
    following = [step.step_id for step in steps[1:]] + [""]
    shapes = [_step_shape(path, step, after) for step, after in zip(steps, following, strict=True)]
    return StepListShape(path=path, role=role, condition=condition, steps=shapes)


def _step_shape(path: str, step: StepConfig, following: str) -> StepShape:
    return StepShape(
        path=path + step.step_id,
        step_id=step.step_id,
        kind=step.kind,
        text=_action_text(step),
        description=step.description,
        transitions=[*_after_success(step, following), *_after_failure(step)],
        lists=list(_inner_lists(f"{path}{step.step_id}/", step)),
    )


def _inner_lists(path: str, step: StepConfig) -> Iterator[StepListShape]:
    for number, branch in enumerate(step.parallel):
        yield _list_shape(f"{path}{number}/", "branch", branch)
    for number, case in enumerate(step.switch):
        yield _list_shape(f"{path}{number}/", "case", case.steps, _conditions(case.when or ()))
    if step.switch and step.switch[-1].when is not None:
        yield StepListShape(path=f"{path}else/", role="else")
    if step.for_each is not None:
        items = step.for_each.in_
        text = items if isinstance(items, str) else json.dumps(items, ensure_ascii=False)
        yield _list_shape(f"{path}0/", "item", step.for_each.steps, text)


def _after_success(step: StepConfig, following: str) -> Iterator[Transition]:
    for number, action in enumerate(step.on_success, 1):
        each = _transition(action, number)
        is_default = each.type != "retry" and each.to == following and not each.condition
        yield replace(each, type="next") if is_default else each
        if not action.criteria:
            return
    yield Transition(type="next", to=following)


def _after_failure(step: StepConfig) -> Iterator[Transition]:
    for number, action in enumerate(step.on_failure, 1):
        yield _transition(action, number, after_failure=True)
    if step.confirm and not step.on_failure:
        yield Transition(type="no", after_failure=True)


def _transition(action: Action, number: int, *, after_failure: bool = False) -> Transition:
    return Transition(
        type=action.type,
        to=action.step_id,
        after_failure=after_failure,
        action=action.name or f"{number}",
        condition=" ".join(filter(None, [action.name, _conditions(action.criteria)])),
        limit=action.retry_limit if action.type == "retry" else 0,
    )


def _action_text(step: StepConfig) -> str:
    """Return the action of a step in a line."""
    if step.operation is not None:
        return f"{step.operation.method} {step.operation.url or 'flow_url'}"
    if step.ask is not None:
        return step.ask.question
    if step.confirm and not step.tool:
        return step.confirm.question
    if step.wait_for is not None:
        return step.wait_for.event or step.wait_for.until or f"{step.wait_for.seconds:g} s"
    if step.handover is not None:
        return step.handover.about or step.handover.queue
    if step.llm is not None:
        return step.llm.prompt
    return step.tool or step.workflow_id or step.say


def _conditions(criteria: Sequence[Criterion]) -> str:
    return " && ".join(each.condition for each in criteria)


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
    chart.add_line(f"%% {_one_line(flow.title)}")
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
                self.add_line(f"  {name}{opening}{_quote(_node_label(step))}{closing}")
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


def _node_label(step: StepShape) -> str:
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


def _one_line(text: str) -> str:
    """Return a text on one line, shortened."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LENGTH else f"{line[: _MAX_LENGTH - 1]}…"


def _quote(text: str) -> str:
    """Quote a text; characters with a meaning in Mermaid become character references."""
    return '"' + "".join(f"#{ord(each)};" if each in '"#;<>&`' else each for each in _one_line(text)) + '"'
