"""Who sees a run, and who decides what it waits for."""

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
    """The rules of the profiles about approvals, for the caller of the moment.

    A run is seen by who started it, and by those whom its profile names in `approvals.who`. Over HTTP these
    decide then, and nobody else; otherwise who started it does. The user of this machine always may: they
    could change the configuration as well.

    Args:
        settings: of the process.
        sees_all: whether every run is seen; see `Service`.
    """

    def __init__(self, settings: Settings, *, sees_all: bool = False) -> None:
        self._over_http = settings.over_http
        self._file: AgentFile | None = None
        self.sees_all = sees_all

    def load(self, file: AgentFile) -> None:
        """Go by this configuration."""
        self._file = file

    @property
    def profiles(self) -> Sequence[str]:
        """The profiles that name the caller, who sees their runs, whosever they are."""
        if self._file is None:
            return ()
        return [name for name, profile in self._file.profiles.items() if _names_caller(profile)]

    def can_see(self, run: Run) -> bool:
        """Whether the caller sees a run."""
        profile = self._profile(run)
        named = profile is not None and _names_caller(profile)
        return self.sees_all or named or run.request.caller == current_caller().id

    def can_decide(self, run: Run) -> bool:
        """Whether the caller is one whom a run may be decided by, in whatever way they are asked."""
        profile = self._profile(run)
        if self.sees_all or not current_caller().may("write"):
            return self.sees_all
        if profile is None or not profile.approvals.who or not self._over_http:
            return True
        return _names_caller(profile)

    def can_decide_by_tool(self, run: Run) -> bool:
        """Whether they may do so by a tool, which a model may call without their seeing it."""
        profile = self._profile(run)
        if not self.can_decide(run):
            return False
        if profile is None:  # of another process, with another configuration
            return self.sees_all or not self._over_http
        return self.sees_all or _names_caller(profile) or profile.asks_by_tool(over_http=self._over_http)

    @property
    def can_vouch(self) -> bool:
        """Whether what the caller approves counts as looked at for everybody: a tool of an MCP server."""
        return not current_caller().id or self.sees_all or bool(self.profiles)

    def _profile(self, run: Run) -> ProfileConfig | None:
        return self._file.profiles.get(run.request.profile) if self._file else None


def _names_caller(profile: ProfileConfig) -> bool:
    caller = current_caller()
    return bool(caller.id) and caller.name in profile.approvals.who
