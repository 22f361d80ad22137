"""Run context: the run and the program's dependencies, for tools and for dynamic instructions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from loom_core.runs.run import CONTEXT
from loom_core.tools.interface import CallContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.runs.run import Run, RunUsage

__all__ = ["RunContext"]

_DepsT_co = TypeVar("_DepsT_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext(CallContext, Generic[_DepsT_co]):
    """Context of a run of an agent, for its tools and its instructions.

    A function tool with a parameter of this type, such as `context: RunContext[Shop]`, gets it; models do
    not see the parameter.

    Attributes:
        run: the run in its current state.
        deps: the program's dependencies, such as clients and connections: `Agent(deps=…)`, or
            `run(goal, deps=…)`. They are not in the journal.
    """

    run: Run
    deps: _DepsT_co

    @property
    def caller(self) -> str:
        """Id of the caller; empty for the user of this machine."""
        return self.run.request.caller

    @property
    def session_id(self) -> str:
        """The conversation that the run belongs to."""
        return self.run.request.session_id

    @property
    def data(self) -> Mapping[str, Any]:
        """The caller's data about the run: `run(goal, context=…)`; it is in the journal."""
        return self.run.request.metadata.get(CONTEXT, {})

    @property
    def usage(self) -> RunUsage:
        """Resources that the run has used, up to its last event that says so."""
        return self.run.spent
