"""What the tools and the command line do with runs, without any words about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from anyio import to_thread

from loom_agent.engine import Engine
from loom_agent.profiles.approvers import Approvers
from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.runs.commands import ApprovalDecision, InputResponse, Resume
from loom_core.runs.run import is_for_call
from loom_core.server.auth.caller import EVERYTHING, acting, current_caller

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from loom_agent.models import BudgetInput
    from loom_agent.profiles.agent_file import AgentFile
    from loom_agent.profiles.agents import Agents, ProfileAgent
    from loom_agent.settings import Settings
    from loom_core.runs.commands import Command, Reply
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.host import RunHost
    from loom_core.runs.journal import Journal
    from loom_core.runs.run import Budget, Pending, Run, RunStatus

__all__ = ["Service"]

_SERVER_SECONDS = 5.0  # that a run waits for MCP servers which are just starting
_RESUMED_SECONDS = 5.0  # that a run has to go on, before it is looked at
_FINAL = frozenset({"completed", "failed", "aborted"})


class Service:
    """The runs of one home. Use it as `async with`.

    Nothing is opened before the first call that needs it, but for runs that another process has left; see
    `Engine`.

    Whose runs a caller sees is decided here: their own, and those of profiles that name them as one who
    decides. Others are as if they were not there.

    Attributes:
        settings: of the process.
        approvers: who may decide what.
    """

    def __init__(self, settings: Settings, *, adopts: bool = True, sees_all: bool = False) -> None:
        """Open nothing yet.

        Args:
            settings: of the process.
            adopts: whether to go on with runs that other processes have left.
            sees_all: whether everybody's runs are seen: on the command line, whose user owns the file.
        """
        self.settings = settings
        self.approvers = Approvers(settings, sees_all=sees_all)
        self._engine = Engine(settings, adopts=adopts)

    async def __aenter__(self) -> Self:
        await self._engine.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._engine.__aexit__(kind, error, traceback)

    def load(self) -> AgentFile:
        """The configuration, read at the first time. Blocks.

        Raises:
            ConfigError: it is no such file.
        """
        file = self._engine.load()
        self.approvers.load(file)
        return file

    async def start(
        self,
        goal: str,
        *,
        session_id: str = "",
        profile: str = "",
        allowed_tools: Sequence[str] | None = None,
        budget: BudgetInput | None = None,
        output_schema: Mapping[str, Any] | None = None,
        idempotency_key: str = "",
        client: str = "",
        server_seconds: float = _SERVER_SECONDS,
    ) -> Run:
        """Record a run and begin to drive it; returns at once.

        Args:
            goal: what is wanted.
            session_id: the conversation to go on with; empty for a new one.
            profile: which; empty for that of the session, or the default one.
            allowed_tools: patterns of names; None for all of the profile.
            budget: what it may take, as far as the profile grants it.
            output_schema: JSON Schema of the final answer.
            idempotency_key: the same one gets the same run again.
            client: which program asks, to be kept with the run.
            server_seconds: for how long MCP servers are waited for that are just starting.

        Raises:
            InvalidInputError: something of it cannot be used.
            NotFoundError: there is no such profile or session.
            ConfigError: the profile cannot work as it is configured; it says what to set.
            SourceError: an MCP server that has to be there is not.
            RecordError: the journal cannot be written.
        """
        file = await to_thread.run_sync(self.load)
        caller = current_caller()
        name = profile or await self._profile_of(session_id) or file.default
        if not caller.may_use(name):
            raise _no_profile(name, [each for each in file.profiles if caller.may_use(each)])
        made = await self.agents().get(file, name, patience=server_seconds)
        request = made.agent.request(
            goal,
            output_schema=output_schema,
            session_id=session_id,
            budget=_limit_budget(made.agent.budget, budget),
            allowed_tools=allowed_tools,
            idempotency_key=idempotency_key,
            caller=caller.id,
            metadata={"client": client} if client else {},
        )
        host = await self._engine.host()
        self._engine.mark_servers_awaited(name)
        with acting(EVERYTHING):  # the run goes on when the call has gone
            return await host.start(request)

    async def run(self, run_id: str) -> Run:
        """A run as it stands.

        Raises:
            NotFoundError: the caller has none of this id.
        """
        await to_thread.run_sync(self.load)
        journal = self.journal()
        run = await journal.get(run_id)
        if self.approvers.can_see(run):
            return self._with_problem(run)
        return await journal.get(run_id, caller=current_caller().id)  # says that there is none

    async def wait_until_idle(self, run_id: str, *, after: int = 0, seconds: float) -> Run:
        """Wait until a run stands still; see `Journal.changed`.

        Raises:
            NotFoundError: the caller has none of this id.
        """
        await self.run(run_id)
        return self._with_problem(await self.journal().wait_until_idle(run_id, after=after, seconds=seconds))

    async def wait_until_applied(self, run_id: str, *, seconds: float) -> Run:
        """Wait until a run has done as it was told; see `Journal.obeyed`.

        Raises:
            NotFoundError: the caller has none of this id.
        """
        await self.run(run_id)
        return self._with_problem(await self.journal().wait_until_applied(run_id, seconds=seconds))

    async def send_commands(self, run_id: str, *orders: Command) -> Run:
        """Tell a run something, all of it or nothing; it is obeyed by whichever process drives it.

        Raises:
            NotFoundError: the caller has none of this id.
            InvalidInputError: it does not fit how the run stands.
        """
        await self.run(run_id)
        if not self._engine.adopts:  # it goes to whoever drives the run; nobody is made to
            return await self.journal().send_commands(run_id, *orders)
        host = await self._engine.host()
        with acting(EVERYTHING):
            return await host.send_commands(run_id, *orders)

    async def resume(self, run_id: str, *, by: str) -> Run:
        """Drive a run here: one that was paused, has failed or was aborted, or one that nobody drives.

        Raises:
            NotFoundError: the caller has none of this id; or nobody drives it, and its profile is not here.
            ConfigError: its profile cannot work as it is configured; it says what to set.
            InvalidInputError: it is completed, or for a call of another run, which does not make it now.
        """
        run = await self.run(run_id)
        if run.status in {"working", "input_required"}:
            await self.adopt(run_id)
            return run
        host = await self._host_for(run)
        with acting(EVERYTHING):
            run = await host.send_commands(run_id, Resume(by=by))
        # Who follows it would take its last end for the one to come.
        await self.journal().wait_until_applied(run_id, seconds=_RESUMED_SECONDS)
        return run

    async def adopt(self, run_id: str) -> None:
        """Drive a run here that nobody drives, if only to have it obey what it was told.

        Raises:
            NotFoundError: as for `go_on`.
            ConfigError: likewise.
        """
        host = await self._host_for(await self.run(run_id))
        with acting(EVERYTHING):
            await host.adopt(run_id)

    async def _host_for(self, run: Run) -> RunHost:
        """What drives a run, once it is sure that it can: otherwise who waits for it would do so for ever."""
        if not run.driver and not is_for_call(run):
            await self.agent(run.request.profile)
        return await self._engine.host()

    async def decide(self, run: Run, *decisions: ApprovalDecision | InputResponse) -> Run:
        """Tell a run what was decided of things that it waits for: all of it is taken, or nothing.

        Who may approve tools for everybody does so with a call of it; others for their run only. It is noted
        by the process that drives the run; here, where none does.

        Raises:
            InvalidInputError: the run does not wait for one of them, or not any more; or there are two
                decisions about the same thing; or it does not take the answer, or the arguments.
        """
        twice = [id_ for id_, times in Counter(each.id for each in decisions).items() if times > 1]
        if twice:
            raise InvalidInputError(
                f"There are several decisions about {twice[0][:200]!r}.", advice="Decide each thing once."
            )
        # An approval for the rest of the run is one of what else is asked about the tool: that is said first.
        keep = self.approvers.can_vouch
        orders = [
            replace(each, keep=keep) if isinstance(each, ApprovalDecision) else each for each in decisions
        ]
        decided = await self.send_commands(run.id, *sorted(orders, key=_is_for_run))
        if keep and not decided.driver and not self._engine.adopts:
            approved = {
                each.id for each in orders if isinstance(each, ApprovalDecision) and each.action != "deny"
            }
            await self._save_approvals(each for each in run.pending if each.id in approved)
        return decided

    async def _save_approvals(self, approved: Iterable[Pending]) -> None:
        """Note that tools were approved, as they were when it was asked."""
        from loom_core.mcp_client.tools.pins import Approvals

        approvals = Approvals(self.settings.home)
        for each in approved:
            if each.kind == "approval":
                await approvals.approve_as_seen(each.tool, each.fingerprint)

    def can_decide(self, run: Run) -> bool:
        """Whether the caller is one whom a run may be decided by."""
        return self.approvers.can_decide(run)

    async def reply(self, session_id: str, reply: Reply, *, client: str = "") -> Run:
        """Say something in a session: to its run while that goes on, otherwise to begin the next one.

        Args:
            session_id: which session.
            reply: what is said.
            client: as for `start`.

        Raises:
            NotFoundError: the caller has no such session.
            LoomError: as for `start`.
        """
        run = await self.latest(session_id)
        if run.status not in _FINAL:
            try:
                return await self.send_commands(run.id, reply)
            except InvalidInputError:
                run = await self.run(run.id)
                if run.status not in _FINAL:  # it has not just ended: something else is wrong
                    raise
        profile = run.request.profile
        try:
            return await self.start(reply.text, session_id=session_id, profile=profile, client=client)
        except InvalidInputError as refused:
            run = await self.latest(session_id)  # another message may have begun it in the same moment
            try:
                return await self.send_commands(run.id, reply)
            except InvalidInputError:
                raise refused from None

    async def runs(
        self, *, status: Sequence[RunStatus] = (), session_id: str = "", query: str = "", limit: int = 20
    ) -> list[Run]:
        """The caller's runs: the latest first, or by words of goal and answer those that fit best.

        Args:
            status: how they are; empty for whatever.
            session_id: of which session; empty for all.
            query: words; empty for none.
            limit: how many at the most.
        """
        await to_thread.run_sync(self.load)
        journal = self.journal()
        search = partial(journal.search, query) if query else journal.runs
        return await search(
            caller=None if self.approvers.sees_all else current_caller().id,
            profiles=self.approvers.profiles,
            session_id=session_id,
            status=status,
            limit=limit,
        )

    async def latest_runs(self, limit: int) -> Sequence[Run]:
        """The caller's runs, the latest first."""
        return await self.runs(limit=limit)

    @property
    def journal_path(self) -> Path:
        """The file of all runs of this home."""
        return self.settings.journal

    async def latest(self, session_id: str) -> Run:
        """The last run of a session.

        Raises:
            NotFoundError: the caller has no such session.
        """
        for run in await self.runs(session_id=session_id, limit=1):
            return run
        raise NotFoundError(
            f"There is no session {session_id[:200]!r}.", advice="Take the session_id of an answer."
        )

    async def events(self, run_id: str, *, after: int = 0, limit: int = 100) -> list[StreamEvent]:
        """What happened in a run, oldest first.

        Raises:
            NotFoundError: the caller has none of this id.
        """
        await self.run(run_id)
        return await self.journal().events(run_id, after=after, limit=limit)

    async def blob(self, run_id: str, number: int) -> tuple[bytes, str]:
        """What was too large for an event, and its media type.

        Raises:
            NotFoundError: the caller has none of this id, or it has no such blob.
        """
        await self.run(run_id)
        return await self.journal().blob(run_id, number)

    async def agent(self, profile: str = "") -> ProfileAgent:
        """The agent of a profile, with the tools that it has by now.

        Raises:
            LoomError: as for `start`.
        """
        file = await to_thread.run_sync(self.load)
        name = profile or file.default
        if not current_caller().may_use(name):
            raise _no_profile(name, [each for each in file.profiles if current_caller().may_use(each)])
        return await self.agents().get(file, name, patience=_SERVER_SECONDS)

    def journal(self) -> Journal:
        """All runs of this home; opened at the first use."""
        return self._engine.journal()

    def agents(self) -> Agents:
        """The agents of this process."""
        return self._engine.agents()

    def _with_problem(self, run: Run) -> Run:
        """The run with the reason why it does not go on, where this process cannot drive it now."""
        problem = self._engine.held.get(run.id, "") if run.status == "working" else ""
        return replace(run, problem=problem) if problem else run

    async def _profile_of(self, session_id: str) -> str:
        """The profile of a session's last run; empty for a session that is not known."""
        if not session_id:
            return ""
        runs = await self.runs(session_id=session_id, limit=1)
        return runs[0].request.profile if runs else ""


def _is_for_run(decision: ApprovalDecision | InputResponse) -> bool:
    return isinstance(decision, ApprovalDecision) and decision.scope == "run"


def _limit_budget(most: Budget, asked: BudgetInput | None) -> Budget:
    """What is asked for, as far as it is within what the profile grants."""
    if asked is None:
        return most
    wanted = {name: value for name, value in asked.model_dump().items() if value is not None}
    limits = {name: getattr(most, name) for name in wanted}
    granted = {
        name: value if limits[name] is None else min(value, limits[name]) for name, value in wanted.items()
    }
    return replace(most, **granted)


def _no_profile(name: str, known: Sequence[str]) -> NotFoundError:
    near = get_close_matches(name, known, n=1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    listed = f"There are: {', '.join(known)}." if known else "There is none for you."
    return NotFoundError(f"There is no profile {name[:200]!r}.", advice=f"{meant}{listed}")
