"""Access rules for runs: who may see a run, and who may decide its pending requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.server.auth.caller import current_caller

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_agent.profiles.agent_file import AgentFile
    from loom_agent.profiles.profile_config import ProfileConfig
    from loom_agent.settings import Settings
    from loom_core.runs.run import Run

__all__ = ["Approvers"]


class Approvers:
    """Access rules of the profiles about approvals, for the current caller.

    The starter of a run can see it, and the callers that its profile names in `approvals.who`. Over HTTP only
    the latter may decide, if there are any; otherwise the starter may. The user of this machine always may,
    as they could also change the configuration.

    Args:
        settings: settings of the process.
        sees_all: whether every run is visible; see `AgentService`.
    """

    def __init__(self, settings: Settings, *, sees_all: bool = False) -> None:
        self._over_http = settings.over_http
        self._file: AgentFile | None = None
        self.sees_all = sees_all

    def load(self, file: AgentFile) -> None:
        """Use this configuration."""
        self._file = file

    @property
    def profiles(self) -> Sequence[str]:
        """The profiles that name the caller as approver, who can see all their runs."""
        if self._file is None:
            return ()
        return [name for name, profile in self._file.profiles.items() if _names_caller(profile)]

    def can_see(self, run: Run) -> bool:
        """Whether the caller can see a run."""
        profile = self._profile(run)
        named = profile is not None and _names_caller(profile)
        return self.sees_all or named or run.request.caller == current_caller().id

    def can_decide(self, run: Run) -> bool:
        """Whether the caller may decide for a run, in any way."""
        profile = self._profile(run)
        if self.sees_all or not current_caller().may("write"):
            return self.sees_all
        if profile is None or not profile.approvals.who or not self._over_http:
            return True
        return _names_caller(profile)

    def can_decide_by_tool(self, run: Run) -> bool:
        """Whether the caller may decide by a tool, which a model could call unseen."""
        profile = self._profile(run)
        if not self.can_decide(run):
            return False
        if profile is None:  # of another process, with another configuration
            return self.sees_all or not self._over_http
        return self.sees_all or _names_caller(profile) or profile.asks_by_tool(over_http=self._over_http)

    @property
    def can_approve_for_all(self) -> bool:
        """Whether the caller's approval of an MCP tool counts for all callers."""
        return not current_caller().id or self.sees_all or bool(self.profiles)

    def _profile(self, run: Run) -> ProfileConfig | None:
        return self._file.profiles.get(run.request.profile) if self._file else None


def _names_caller(profile: ProfileConfig) -> bool:
    caller = current_caller()
    return bool(caller.id) and caller.name in profile.approvals.who
