"""A list of steps under way, and the steps in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    from loom_core.flow.executor.definition import Digests

__all__ = ["Frame", "Next", "StepState", "StepStatus", "digests_from"]

StepStatus = Literal["running", "success", "failure", "unknown", "declined"]
"""`unknown`: it was sent, and nobody knows whether it was done; `declined`: a person said no."""


@dataclass(frozen=True, slots=True)
class Next:
    """What follows a step.

    Attributes:
        to: the step `step`; the end, in good order; the end, as a failure; the same step once more.
        step: where `step` leads; for `retry`: a step that is done before, if any.
        at: when `retry` is due, in seconds since 1970.
        action: which action said so; empty where none did.
        response: what the user reads at the `end`, where the action says so.
    """

    to: Literal["step", "end", "fail", "retry"]
    step: str = ""
    at: float = 0.0
    action: str = ""
    response: str = ""


@dataclass(slots=True)
class StepState:
    """A step as it was last visited.

    Attributes:
        step_id: its id.
        visit: how often it was come to in this run; the visits after the first have keys of their own.
        attempt: how often it was tried in this visit.
        place: its place among all steps of the run, by when they began.
        status: how it stands.
        outputs: what it has given.
        problem: why it failed.
        said: what users are told of that.
        retries: how often each action has had it done again.
        due: when it is to be tried again, in seconds since 1970; None where it is not.
        via: what is done before it is tried again; empty for nothing, or when that is done.
        begun: whether it was told to run and has no result.
        changes: whether it may change something outside.
        risky: whether it must not be done twice: if it has begun, nobody knows after a crash whether it was.
        approved: whether a person has approved it.
        tool: the name of the tool that it calls, if it does.
    """

    step_id: str
    visit: int
    attempt: int
    place: int
    status: StepStatus = "running"
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    problem: str = ""
    said: str = ""
    retries: Counter[str] = field(default_factory=Counter[str])
    due: float | None = None
    via: str = ""
    begun: bool = True
    changes: bool = False
    risky: bool = False
    approved: bool = False
    tool: str = ""


@dataclass(slots=True)
class Frame:
    """A list of steps under way: of the flow, of a branch, or of a flow that is a step of another.

    Attributes:
        path: of its steps: empty, or that of the step which it is for with a slash behind it, `pay/0/`.
        parent: path of the frame which that step is in; None for the flow itself.
        step: the id of that step.
        key: the same with the visits, `pay#2/0/`: with it and the run, each visit has a name of its own.
        flow_id: which flow its steps are of.
        scope: path of the frame of that flow, which has its inputs.
        inputs: what it was given, in the frame of a flow.
        given: how many steps of the run had begun when those came that it was not given first.
        digests: its steps as they were; see `Digests`.
        at: the step at which it stands; empty at its end.
        ended: how it has ended; empty before.
        response: what the user reads, where an action said so.
        steps: those that were visited, by id.
        visits: how often each was, since a person last had a hand in it.
    """

    path: str
    parent: str | None
    step: str
    key: str
    flow_id: str
    scope: str
    inputs: dict[str, Any]
    digests: Digests
    at: str
    ended: Literal["", "success", "failure"] = ""
    response: str = ""
    given: dict[str, int] = field(default_factory=dict[str, int])
    steps: dict[str, StepState] = field(default_factory=dict[str, StepState])
    visits: Counter[str] = field(default_factory=Counter[str])

    @property
    def last(self) -> StepState | None:
        """The step that began last."""
        return max(self.steps.values(), key=lambda step: step.place, default=None)

    def to_json(self) -> dict[str, Any]:
        """The frame as it begins, for the journal."""
        told = asdict(self)
        return {name: value for name, value in told.items() if name not in {"given", "steps", "visits"}}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Frame:
        """What `to_json` gave."""
        others = {name: value for name, value in kept.items() if name not in {"inputs", "digests"}}
        return cls(**others, inputs=dict(kept["inputs"]), digests=digests_from(kept["digests"]))


def digests_from(kept: object) -> Digests:
    """Digests as the journal has them."""
    return [(step, digest) for step, digest in cast("list[tuple[str, str]]", kept)]
