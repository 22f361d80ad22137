"""Dependencies of the execution of flows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.config.models_endpoint import EndpointConfig
    from loom_core.flow.executor.audit import FlowAudit
    from loom_core.flow.expressions import ExpressionValues
    from loom_core.flow.http.response import EndpointResult
    from loom_core.flow.understanding.language import Language
    from loom_core.llm.interface import LLMProvider
    from loom_core.runs.human_broker import HumanInputPolicy
    from loom_core.runs.run import Run
    from loom_core.tools.execution.pipeline import ToolPipeline
    from loom_core.tools.toolbox import Toolbox

__all__ = ["FlowDependencies", "FlowLimits", "RequestSender"]


class RequestSender(Protocol):
    """Sender of requests; see `EndpointCaller`."""

    async def call(
        self,
        endpoint: EndpointConfig,
        values: ExpressionValues,
        *,
        run_id: str = "",
        step_id: str = "",
        seconds: float | None = None,
    ) -> EndpointResult:
        """Send a request; see `EndpointCaller.call`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """Limits that prevent endless flows.

    Attributes:
        visits: maximum number of visits to a step, in a run or since a person last acted.
        depth: maximum depth of nested flows.
        settle_seconds: time for steps with side effects to end when their run is cancelled.
    """

    visits: int = 50
    depth: int = 8
    settle_seconds: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDependencies:
    """Dependencies that all runs of flows share.

    Attributes:
        file: the flows.
        localized: the flows localized in each language.
        version: version of the configuration.
        caller: sender of requests.
        toolbox: the tools.
        pipeline: returns the tool pipeline of a run.
        asking: human input policy; at least, people can respond by commands.
        limits: limits of runs.
        audit: audit of decisions, and of requests with side effects.
        llm: the language model of `llm` steps; None if they fail.
    """

    file: FlowFile
    localized: Mapping[Language, FlowFile]
    version: str
    caller: RequestSender
    toolbox: Toolbox
    pipeline: Callable[[Run], ToolPipeline]
    asking: HumanInputPolicy
    limits: FlowLimits
    audit: FlowAudit
    llm: LLMProvider | None = None
