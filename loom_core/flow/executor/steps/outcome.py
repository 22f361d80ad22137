"""What came of doing a step once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom_core.flow.executor.frame import StepStatus

__all__ = ["Outcome", "Response"]


@dataclass(frozen=True, slots=True)
class Response:
    """What answered: an HTTP server; or a tool or a flow, whose answer is taken for a body.

    Attributes:
        status: HTTP status; 200 where there is none.
        headers: by name in lower case.
        body: JSON, or a text.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """See above.

    Attributes:
        status: how it ended, as far as the step itself says; its criteria may find it a failure.
        response: what answered; None where nothing did.
        outputs: what it gives besides what its configuration names.
        problem: why it failed.
        said: what users are told of that; empty where it is not theirs to know.
        retry_after: seconds that a server asks to wait.
        maybe_done: whether it may have been done though it is no success, as it always may where that is
            unknown.
        final: whether it is not to be tried again, whatever the actions say.
    """

    status: StepStatus = "success"
    response: Response | None = None
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    problem: str = ""
    said: str = ""
    retry_after: float | None = None
    maybe_done: bool = False
    final: bool = False

    def unreadable(self, problem: str, *, said: str, risky: bool) -> Outcome:
        """The same, where what came of it cannot be read, though it may well have been done.

        Args:
            problem: why.
            said: what users are told.
            risky: whether it must not be done twice.
        """
        return replace(
            self,
            status="unknown" if risky else "failure",
            problem=problem,
            said=said,
            maybe_done=True,
            retry_after=None,
        )
