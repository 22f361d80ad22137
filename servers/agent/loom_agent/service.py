"""Service: the operations on runs for the tools and the command line, with access control."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from anyio import to_thread

from loom_agent.engine import Engine
from loom_agent.profiles.approvers import Approvers
from loom_core.agent.steps import ForkOptions
from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.runs.commands import ApprovalDecision, InputResponse, Resume
from loom_core.runs.run import CONTEXT, is_for_call
from loom_core.server.auth.caller import FULL_ACCESS, current_caller, use_caller

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from loom_agent.models import BudgetInput
    from loom_agent.profiles.agent_file import AgentFile
    from loom_agent.profiles.agents import Agents, ProfileAgent
    from loom_agent.profiles.profile_config import ProfileConfig
    from loom_agent.settings import Settings
    from loom_core.runs.commands import Command, Reply
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.host import RunHost
    from loom_core.runs.journal import Journal, PostgresPlace
    from loom_core.runs.run import Attachment, Budget, Pending, Run, RunStatus

__all__ = ["AgentService"]

_SERVER_SECONDS = 5.0  # that a run waits for MCP servers which are just starting
_RESUMED_SECONDS = 5.0  # timeout for a resume to be applied
_FINAL = frozenset({"completed", "failed", "aborted"})


class AgentService:
    """Service for the runs of one home. Use it as `async with`.

    It opens everything on first use, except that it adopts orphaned runs of other processes; see `Engine`.

    It controls access: a caller sees their own runs, and those of profiles that name them as approver. Other
    runs do not exist for them.

    Attributes:
        settings: settings of the process.
        approvers: the access rules for decisions.
    """

    def __init__(self, settings: Settings, *, adopts: bool = True, sees_all: bool = False) -> None:
        """Create the service; this opens nothing.

        Args:
            settings: settings of the process.
            adopts: whether to adopt orphaned runs of other processes.
            sees_all: whether callers see all runs: on the command line, whose user owns the file.
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
        """Return the configuration, loaded on first use. Blocks.

        Raises:
            ConfigError: the file is invalid.
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
        context: Mapping[str, Any] | None = None,
        idempotency_key: str = "",
        client: str = "",
        attachments: Sequence[str | Attachment] = (),
        server_seconds: float = _SERVER_SECONDS,
    ) -> Run:
        """Create a run and start to execute it; return at once.

        Args:
            goal: the task.
            session_id: the conversation to continue; empty for a new one.
            profile: the profile; empty for that of the session, or the default one.
            allowed_tools: name patterns of tools; None for all tools of the profile.
            budget: limits of the run, within those of the profile.
            output_schema: JSON Schema of the final answer.
            context: data about the run, as the profile defines them; None for those of the session's latest
                run with the profile. Data of the caller's token take precedence.
            idempotency_key: the same key returns the same run.
            client: the client program, to be stored with the run.
            attachments: files that the model reads with the goal. A text is a path, a URL or a resource
                that the caller names; it reaches no further than the agent itself; see `read_attachment`.
            server_seconds: how long to wait for MCP servers that are just starting.

        Raises:
            InvalidInputError: an argument is invalid.
            NotFoundError: there is no such profile or session.
            LoomError: an attachment cannot be loaded.
            ConfigError: the profile cannot work as configured; the message says what to set.
            SourceError: a required MCP server is missing.
            StoreError: the journal cannot be written.
        """
        file = await to_thread.run_sync(self.load)
        caller = current_caller()
        latest = await self.latest_in(session_id)
        name = profile or (latest.request.profile if latest is not None else file.default)
        if not caller.may_use(name):
            raise _no_profile(name, [each for each in file.profiles if caller.may_use(each)])
        made = await self.agents().get(file, name, seconds=server_seconds)
        if output_schema is not None and not file.answers_with_data(name):
            raise InvalidInputError(
                f"The answer of the profile {name!r} is the texts of several members, which fit no schema.",
                advice="Leave `output_schema` out, or add a last step that makes one answer of them.",
            )
        if attachments and made.profile.composition:
            raise InvalidInputError(
                f"The profile {name!r} is a composition, whose members get texts only.",
                advice="Leave `attachments` out, or use a profile with a model.",
            )
        if context is None and latest is not None and latest.request.profile == name:
            context = latest.request.metadata.get(CONTEXT)
        loaded = await self._load_attachments(made, attachments) if attachments else ()
        request = made.agent.request(
            goal,
            attachments=loaded,
            output_schema=output_schema,
            context=_context(made.profile, name, context or {}, of_token=caller.context),
            session_id=session_id,
            budget=_limit_budget(made.agent.budget, {} if budget is None else budget.model_dump()),
            allowed_tools=allowed_tools,
            idempotency_key=idempotency_key,
            caller=caller.id,
            metadata={"client": client} if client else {},
        )
        host = await self._engine.host()
        self._engine.mark_servers_awaited(name)
        with use_caller(FULL_ACCESS):  # the run continues after the end of the call
            return await host.start(request)

    async def _load_attachments(
        self, made: ProfileAgent, given: Sequence[str | Attachment]
    ) -> tuple[Attachment, ...]:
        from loom_agent.profiles.attachments import read_attachment
        from loom_core.agent.attachments import check_sources, load_attachments

        agents, caller = self.agents(), current_caller().id
        folder = agents.file_root(made.profile)
        loaded: list[Attachment] = []
        for each in check_sources(given):  # one after the other: no caller fills the memory
            source = (
                await read_attachment(each, made, mcp=agents.mcp, folder=folder, caller=caller)
                if isinstance(each, str)
                else each
            )
            loaded += await load_attachments([source])
        return await load_attachments(loaded)

    async def fork(self, run: Run, *, at: int, profile: str = "", change: ForkOptions) -> Run:
        """Create a fork of a run for the caller and start to execute it; return at once.

        Args:
            run: the run.
            at: number of the step from which the fork differs; see `Agent.fork`.
            profile: the profile that executes it; empty for that of the run.
            change: see there; the budget is that of the run, within the limits of the profile.

        Raises:
            LoomError: as for `start`, and for `Agent.fork`.
        """
        made = await self.agent(profile or run.request.profile)
        budget = _limit_budget(made.agent.budget, asdict(run.request.budget))
        change = {**change, "budget": budget, "caller": current_caller().id}
        fork = await made.agent.create_fork(run.id, at=at, **change)
        await self.adopt(fork.id)
        return fork

    async def run(self, run_id: str) -> Run:
        """Return a run in its current state.

        Raises:
            NotFoundError: the caller has none of this id.
        """
        await to_thread.run_sync(self.load)
        journal = self.journal()
        run = await journal.get(run_id)
        if self.approvers.can_see(run):
            return self._with_problem(run)
        return await journal.get(run_id, caller=current_caller().id)  # raises NotFoundError

    async def wait_until_idle(self, run_id: str, *, after: int = 0, seconds: float) -> Run:
        """Wait until a run is idle; see `Journal.wait_until_idle`.

        Raises:
            NotFoundError: the caller has none of this id.
        """
        await self.run(run_id)
        return self._with_problem(await self.journal().wait_until_idle(run_id, after=after, seconds=seconds))

    async def wait_until_applied(self, run_id: str, *, seconds: float) -> Run:
        """Wait until the queued commands of a run are applied; see `Journal.wait_until_applied`.

        Raises:
            NotFoundError: the caller has none of this id.
        """
        await self.run(run_id)
        return self._with_problem(await self.journal().wait_until_applied(run_id, seconds=seconds))

    async def send_commands(self, run_id: str, *orders: Command) -> Run:
        """Atomically send commands to a run; the process that executes it applies them.

        Raises:
            NotFoundError: the caller has none of this id.
            InvalidInputError: a command does not fit the state of the run.
        """
        await self.run(run_id)
        if not self._engine.adopts:  # only enqueue: do not execute the run here
            return await self.journal().send_commands(run_id, *orders)
        host = await self._engine.host()
        with use_caller(FULL_ACCESS):
            return await host.send_commands(run_id, *orders)

    async def resume(self, run_id: str, *, by: str) -> Run:
        """Resume a run here: one that was paused, has failed or was aborted, or one that no process executes.

        Raises:
            NotFoundError: the caller has none of this id; or no process executes it, and its profile is not
                configured here.
            ConfigError: its profile cannot work as configured; the message says what to set.
            InvalidInputError: it is completed, or it is a child run whose parent is not active.
        """
        run = await self.run(run_id)
        if run.status in {"working", "input_required"}:
            await self.adopt(run_id)
            applied = await self.wait_until_applied(run_id, seconds=_RESUMED_SECONDS)
            if applied.status != "paused":  # else it was to pause when no process executed it
                return run
        host = await self._host_for(run)
        with use_caller(FULL_ACCESS):
            run = await host.send_commands(run_id, Resume(by=by))
        # Otherwise a follower could take its previous final event for the new one.
        await self.journal().wait_until_applied(run_id, seconds=_RESUMED_SECONDS)
        return run

    async def adopt(self, run_id: str) -> None:
        """Adopt a run that no process executes, at least to apply its queued commands.

        Raises:
            NotFoundError: as for `resume`.
            ConfigError: likewise.
        """
        host = await self._host_for(await self.run(run_id))
        with use_caller(FULL_ACCESS):
            await host.adopt(run_id)

    async def _host_for(self, run: Run) -> RunHost:
        """Return the host for a run; check first that its profile works, so that no caller waits forever."""
        if not run.driver and not is_for_call(run):
            await self.agent(run.request.profile)
        return await self._engine.host()

    async def decide(self, run: Run, *decisions: ApprovalDecision | InputResponse) -> Run:
        """Atomically send decisions to a run about its pending requests.

        If the caller may approve tools for all callers, the approval of a call also approves its tool; else
        it holds for this run only. The process that executes the run stores the approval; if there is none,
        this one does.

        Raises:
            InvalidInputError: a request is not pending (any more), there are two decisions about one request,
                or an answer or arguments do not fit.
        """
        twice = [id_ for id_, times in Counter(each.id for each in decisions).items() if times > 1]
        if twice:
            raise InvalidInputError(
                f"There are several decisions about {twice[0][:200]!r}.", advice="Decide each request once."
            )
        # An approval for the rest of the run also decides other requests: send their own decisions first.
        keep = self.approvers.can_approve_for_all
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
        """Store the approvals of tools, with their fingerprints from the requests."""
        from loom_core.mcp_client.tools.pins import Approvals

        approvals = Approvals(self.settings.home)
        for each in approved:
            if each.kind == "approval":
                await approvals.approve_as_seen(each.tool, each.fingerprint)

    def can_decide(self, run: Run) -> bool:
        """Whether the caller may decide for a run."""
        return self.approvers.can_decide(run)

    async def reply(self, session_id: str, reply: Reply, *, client: str = "") -> Run:
        """Send a message to a session: to its active run, or else as the goal of the next run.

        Args:
            session_id: the session.
            reply: the message.
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
                if run.status not in _FINAL:  # it has not just ended: there is another problem
                    raise
        profile = run.request.profile
        try:
            return await self.start(reply.text, session_id=session_id, profile=profile, client=client)
        except InvalidInputError as refused:
            run = await self.latest(session_id)  # another message may have started the run concurrently
            try:
                return await self.send_commands(run.id, reply)
            except InvalidInputError:
                raise refused from None

    async def runs(
        self, *, status: Sequence[RunStatus] = (), session_id: str = "", query: str = "", limit: int = 20
    ) -> list[Run]:
        """List the caller's runs, latest first; or search them by words of goal and answer, best match first.

        Args:
            status: only runs with these statuses; empty for all.
            session_id: only runs of this session; empty for all.
            query: words to search for; empty for none.
            limit: maximum number of runs.
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
        """List the caller's runs, latest first."""
        return await self.runs(limit=limit)

    @property
    def journal_place(self) -> Path | PostgresPlace:
        """Where the journal is."""
        return self.settings.journal

    async def latest(self, session_id: str) -> Run:
        """Return the latest run of a session.

        Raises:
            NotFoundError: the caller has no such session.
        """
        if (run := await self.latest_in(session_id)) is None:
            raise NotFoundError(
                f"There is no session {session_id[:200]!r}.", advice="Use the session_id of an answer."
            )
        return run

    async def latest_in(self, session_id: str) -> Run | None:
        """Return a session's latest run; None for an unknown or a new session."""
        runs = await self.runs(session_id=session_id, limit=1) if session_id else []
        return runs[0] if runs else None

    async def events(self, run_id: str, *, after: int = 0, limit: int = 100) -> list[StreamEvent]:
        """Return the events of a run, oldest first.

        Raises:
            NotFoundError: the caller has none of this id.
        """
        await self.run(run_id)
        return await self.journal().events(run_id, after=after, limit=limit)

    async def answered_by(self, run: Run) -> str:
        """Return the member that answered in a completed run of a router or a handoff; else an empty text."""
        profile = (await to_thread.run_sync(self.load)).profiles.get(run.request.profile)
        if run.status != "completed" or profile is None or not profile.is_answered_by_one:
            return ""
        events = await self.journal().events(run.id, limit=run.last_seq)
        called = [event.payload["calls"] for event in events if event.type == "tool_calls_start"]
        return str(called[-1][-1]["tool"]) if called else ""

    async def blob(self, run_id: str, number: int) -> tuple[bytes, str]:
        """Return a blob that was too large for an event, and its media type.

        Raises:
            NotFoundError: the caller has none of this id, or it has no such blob.
        """
        await self.run(run_id)
        return await self.journal().blob(run_id, number)

    async def agent(self, profile: str = "") -> ProfileAgent:
        """Return the agent of a profile, with its current tools.

        Raises:
            LoomError: as for `start`.
        """
        file = await to_thread.run_sync(self.load)
        name = profile or file.default
        if not current_caller().may_use(name):
            raise _no_profile(name, [each for each in file.profiles if current_caller().may_use(each)])
        return await self.agents().get(file, name, seconds=_SERVER_SECONDS)

    def journal(self) -> Journal:
        """Return the journal of this home, opened on first use."""
        return self._engine.journal()

    def agents(self) -> Agents:
        """Return the agents of this process."""
        return self._engine.agents()

    def _with_problem(self, run: Run) -> Run:
        """Return the run; if this process cannot continue it now, with the reason as its problem."""
        problem = self._engine.held.get(run.id, "") if run.status == "working" else ""
        return replace(run, problem=problem) if problem else run


def _is_for_run(decision: ApprovalDecision | InputResponse) -> bool:
    return isinstance(decision, ApprovalDecision) and decision.scope == "run"


def _limit_budget(most: Budget, asked: Mapping[str, Any]) -> Budget:
    """Limit the requested budget to that of the profile."""
    wanted = {name: value for name, value in asked.items() if value is not None}
    limits = {name: getattr(most, name) for name in wanted}
    granted = {
        name: value if limits[name] is None else min(value, limits[name]) for name, value in wanted.items()
    }
    return replace(most, **granted)


def _context(
    profile: ProfileConfig, name: str, given: Mapping[str, Any], *, of_token: Mapping[str, str]
) -> Mapping[str, Any]:
    """Return the data of a run.

    Raises:
        InvalidInputError: they do not fit the profile.
    """
    if profile.context is not None:
        return profile.context.merge(given, of_token=of_token)
    if given:
        raise InvalidInputError(f"The profile {name!r} takes no `context`.", advice="Leave it out.")
    return {}


def _no_profile(name: str, known: Sequence[str]) -> NotFoundError:
    near = get_close_matches(name, known, n=1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    listed = f"There are: {', '.join(known)}." if known else "There is none for you."
    return NotFoundError(f"There is no profile {name[:200]!r}.", advice=f"{meant}{listed}")
