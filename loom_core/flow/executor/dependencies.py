"""What drives flows."""

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
    from loom_core.runs.human_broker import HumanInputPolicy
    from loom_core.runs.run import Run
    from loom_core.tools.execution.pipeline import ToolPipeline
    from loom_core.tools.toolbox import Toolbox

__all__ = ["FlowDependencies", "FlowLimits", "RequestSender"]


class RequestSender(Protocol):
    """Sends requests; see `EndpointCaller`."""

    async def call(
        self,
        endpoint: EndpointConfig,
        values: ExpressionValues,
        *,
        run_id: str = "",
        step_id: str = "",
        seconds: float | None = None,
    ) -> EndpointResult:
        """See `EndpointCaller.call`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """What keeps a flow from going on for ever.

    Attributes:
        visits: how often a step may be come to, in a run or since a person last had a hand in it.
        depth: flows within each other.
        settle_seconds: that what changes something outside has to end, where its run is called off.
    """

    visits: int = 50
    depth: int = 8
    settle_seconds: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDependencies:
    """What drives flows, shared by all runs.

    Attributes:
        file: the flows.
        spoken: the same as each language says them.
        version: of the configuration.
        caller: sends requests.
        toolbox: the tools.
        pipeline: makes what plans and runs the calls of a run.
        asking: whom runs ask: who answers by orders, at the least.
        limits: see there.
        audit: has what people decide on file, and requests that have an effect.
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
