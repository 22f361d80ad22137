"""The agents of a process: one for each profile, created on first use."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio import to_thread

from loom_agent.profiles.context_config import fill_placeholders
from loom_agent.profiles.local_knowledge import LocalKnowledge, require_search
from loom_agent.profiles.model_choice import choose_model, create_model, is_demonstration
from loom_agent.settings import LOCAL_USER
from loom_core.errors import ConfigError, NotFoundError
from loom_core.mcp_client.remote_tools import RemoteTools

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from anyio.abc import TaskGroup

    from loom_agent.profiles.agent_file import AgentFile
    from loom_agent.profiles.profile_config import (
        CompactionConfig,
        ProfileConfig,
        SchedulerConfig,
        UserMemoryConfig,
    )
    from loom_agent.settings import Settings
    from loom_core.agent.agent import Agent
    from loom_core.agent.compaction_settings import Compaction
    from loom_core.agent.parts import Instructions
    from loom_core.agent.run_context import RunContext
    from loom_core.agent.user_memory.memory import UserMemory
    from loom_core.knowledge.sources.federation.federation import Federation
    from loom_core.llm.config import ProviderConfig
    from loom_core.llm.interface import ChatOptions, LLMProvider
    from loom_core.runs.journal import Journal
    from loom_core.runs.memory import Memory
    from loom_core.tools.auditing.audit import AuditLog
    from loom_core.tools.execution.scheduler import Scheduler
    from loom_core.tools.interface import Tool
    from loom_core.tools.permission.permissions import Permissions
    from loom_core.tools.toolbox import Toolbox

__all__ = ["Agents", "ProfileAgent", "create_compaction"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProfileAgent:
    """The agent of a profile.

    Attributes:
        agent: the agent.
        profile: the configuration of the profile.
        toolbox: its tools.
        permissions: its permissions.
        model: name of its model, for people.
        servers: names of the MCP servers that it uses.
    """

    agent: Agent
    profile: ProfileConfig
    toolbox: Toolbox
    permissions: Permissions
    model: str
    servers: Sequence[str]


class Agents:
    """Creates the agents of the profiles, and closes their components.

    Args:
        settings: settings of the process.
        journal: the journal of their runs.
    """

    def __init__(self, settings: Settings, journal: Journal) -> None:
        self.mcp = RemoteTools(settings.home)
        self.knowledge = LocalKnowledge(settings.home, database=settings.database)
        self._settings = settings
        self._journal = journal
        self._made: dict[str, ProfileAgent] = {}
        self._turn = anyio.Lock()
        self._memories: dict[str, Memory] = {}
        self._shared: tuple[Scheduler, AuditLog] | None = None

    def work_in(self, tasks: TaskGroup) -> None:
        """Use a task group, which the caller ends, to start servers and load models."""
        self.mcp.start_in(tasks)
        self.knowledge.work_in(tasks)

    async def get(self, file: AgentFile, name: str, *, seconds: float = 0.0) -> ProfileAgent:
        """Return the agent of a profile.

        Args:
            file: the configuration.
            name: the profile; empty for the default one.
            seconds: seconds to wait for MCP servers that are just starting.

        Raises:
            NotFoundError: there is no such profile.
            ConfigError: it cannot work as configured, for example without a model; the message says what to
                set.
            SourceError: a required MCP server is missing.
        """
        team = [file.profiles[each] for each in file.list_team(name)]
        async with self._turn:
            made = await self._get_or_make(file, name or file.default)
        if seconds > 0:
            end = anyio.current_time() + seconds
            for servers in (each.mcp.servers for each in team if not each.composition):
                left = max(end - anyio.current_time(), 0.0)
                await self.mcp.wait_for_servers(servers, seconds=left)
        return made

    def list_agents(self) -> Sequence[ProfileAgent]:
        """List the agents created so far."""
        return list(self._made.values())

    async def close(self) -> None:
        """Close all agents and their components."""
        await self.mcp.close()
        await to_thread.run_sync(self.knowledge.close)
        for each in self._made.values():
            await each.agent.parts.llm.aclose()
        for memory in self._memories.values():
            await memory.aclose()

    async def _get_or_make(self, file: AgentFile, name: str) -> ProfileAgent:
        """Return the agent of a profile; create it on first use, after those of its members."""
        if name not in self._made:
            profile = file.profile(name)
            names = dict.fromkeys(profile.members.values())
            members = [(await self._get_or_make(file, each)).agent for each in names]
            self._made[name] = await self._make(name, profile, members, file.scheduler)
        return self._made[name]

    async def _make(
        self, name: str, profile: ProfileConfig, members: Sequence[Agent], shared: SchedulerConfig
    ) -> ProfileAgent:
        if not profile.needs_model:
            return self._compose(name, profile, members, None, shared)
        config, why = choose_model(profile, self._settings)
        with _naming_profile(name):
            llm = await to_thread.run_sync(create_model, config)
            _log.info("profile %s uses %s: %s", name, _model_name(llm), why)
            if profile.composition:
                return self._compose(name, profile, members, llm, shared)
            return await self._build(name, profile, _given_tools(config, members), llm, shared)

    async def _build(
        self,
        name: str,
        profile: ProfileConfig,
        given: Sequence[Tool],
        llm: LLMProvider,
        shared: SchedulerConfig,
    ) -> ProfileAgent:
        """Create the agent of a profile with a model; `given` are tools in addition to its own."""
        from loom_core.agent.agent import Agent
        from loom_core.agent.skills.skill_set import SkillSet
        from loom_core.knowledge.sources.context_retriever import ContextRetriever
        from loom_core.tools.toolbox import Toolbox

        user_memory = await to_thread.run_sync(self._user_memory, profile.user_memory)
        knowledge = await self.knowledge.sources(profile.knowledge)
        servers = await self.mcp.start_servers(profile.mcp.servers)
        skills = await to_thread.run_sync(
            partial(SkillSet.load, profile.skills, folder=self._settings.config.parent)
        )
        tools = [*await to_thread.run_sync(self._own_tools, profile), *_search(knowledge), *given]
        inject = None if profile.context is None else profile.context.inject
        toolbox = Toolbox(tools, live=[self.mcp.live(servers)], inject=inject)
        permissions = self._permissions(profile)
        agent = Agent(
            llm,
            toolbox=toolbox,
            knowledge=None if knowledge is None else ContextRetriever(knowledge),
            skills=skills,
            user_memory=user_memory,
            permissions=permissions,
            tool_retries=profile.tool_retries.policy(),
            hooks=profile.guardrails.hooks(),
            compaction=await to_thread.run_sync(create_compaction, profile.compaction),
            system_prompt=_instructions(profile),
            options=cast("ChatOptions", profile.options.model_dump(exclude_none=True)),
            **self._run_options(name, profile, shared),
        )
        return ProfileAgent(agent, profile, agent.parts.toolbox, permissions, _model_name(llm), servers)

    def _compose(
        self,
        name: str,
        profile: ProfileConfig,
        members: Sequence[Agent],
        llm: LLMProvider | None,
        shared: SchedulerConfig,
    ) -> ProfileAgent:
        """Create the agent of a composition: a plan calls the members in place of a model."""
        from loom_agent.profiles.composition import CompositionModel
        from loom_agent.profiles.step_tools import handoff_tools, step_tools
        from loom_core.agent.agent import Agent
        from loom_core.tools.permission.permissions import Permissions
        from loom_core.tools.toolbox import Toolbox

        handoff = profile.handoff
        tools = step_tools(members) if handoff is None else handoff_tools(members, handoff.targets)
        plan, toolbox, permissions = CompositionModel(profile, tools, llm=llm), Toolbox(tools), Permissions()
        agent = Agent(
            plan,
            toolbox=toolbox,
            permissions=permissions,
            compaction=None,
            loop_guard=None,
            output_tokens=sys.maxsize,  # the next step gets the whole output
            **self._run_options(name, profile, shared),
        )
        return ProfileAgent(agent, profile, toolbox, permissions, plan.model, ())

    def _run_options(self, name: str, profile: ProfileConfig, shared: SchedulerConfig) -> dict[str, Any]:
        """Return the arguments of an agent that all kinds of profiles have."""
        scheduler, audit = self._common(shared)
        return {
            "name": name,
            "description": profile.description,
            "memory": self._memory(profile.memory),
            "journal": self._journal,
            "wait_for_commands": True,
            "approval_seconds": profile.approvals.deadline_seconds,
            "budget": profile.budget.budget(),
            "scheduler": scheduler.with_limits(**profile.call_limits.model_dump()),
            "priority": profile.priority,
            "audit": audit,
        }

    def _own_tools(self, profile: ProfileConfig) -> list[Tool]:
        from loom_agent.profiles.profile_tools import profile_tools
        from loom_core.tools.builtin.config import FileToolsConfig

        config = profile.tools
        if config.files is None and self._settings.root is not None:
            config = config.model_copy(update={"files": FileToolsConfig(root=self._settings.root)})
        return profile_tools(config, folder=self._settings.config.parent)

    def _permissions(self, profile: ProfileConfig) -> Permissions:
        from loom_core.tools.permission.permissions import Permissions

        return Permissions(
            profile.permissions, base=self._files(profile).absolute(), otherwise=profile.otherwise
        )

    def file_root(self, profile: ProfileConfig) -> Path | None:
        """Return the folder of the file tools of a profile; None if it has none."""
        if profile.tools.files is not None:
            return self._settings.config.parent / profile.tools.files.root.expanduser()
        return self._settings.root

    def _files(self, profile: ProfileConfig) -> Path:
        """Return the base folder of relative paths, in rules and in calls."""
        if (root := self.file_root(profile)) is not None:
            return root
        folder = self._settings.config.parent
        if profile.tools.shell is not None:
            return folder / profile.tools.shell.root.expanduser()
        return folder

    def _common(self, config: SchedulerConfig) -> tuple[Scheduler, AuditLog]:
        """Return the scheduler and the audit log, which all agents share."""
        if self._shared is None:
            from loom_core.tools.auditing.audit import AuditLog

            self._shared = config.scheduler(), AuditLog(self._settings.audit, server="loom-agent-server")
        return self._shared

    def _user_memory(self, config: UserMemoryConfig) -> UserMemory | None:
        """Return the notes about users, as far as a profile has them. Blocks, as it may ask the keyring."""
        if not config.enabled:
            return None
        require_search()
        if self._settings.database:
            raise ConfigError(
                "`user_memory` cannot be used with --database: the notes would stay on one of the machines.",
                advice="Leave out one of them.",
            )
        from loom_core.agent.user_memory.memory import UserMemory

        return UserMemory(
            self._settings.user_memory,
            default_user="" if self._settings.over_http else LOCAL_USER,
            extraction=config.extraction,
            llm=None if config.model is None else create_model(config.model),
        )

    def _memory(self, kind: str) -> Memory:
        if kind not in self._memories:
            if kind == "sqlite":
                from loom_core.runs.memory import SQLiteMemory

                self._memories[kind] = SQLiteMemory(journal=self._journal)
            else:
                from loom_core.plugins import create

                self._memories[kind] = create("memory", kind)
        return self._memories[kind]


@contextmanager
def _naming_profile(profile: str) -> Generator[None]:
    """Add the name of the profile to configuration errors in the block."""
    try:
        yield
    except (ConfigError, NotFoundError) as error:
        raise ConfigError(f"The profile {profile!r}: {error.message}", advice=error.advice) from error


def _model_name(llm: LLMProvider) -> str:
    return f"{llm.name}/{llm.model}".rstrip("/")


def _given_tools(config: ProviderConfig, members: Sequence[Agent]) -> list[Tool]:
    """Return the members as tools, and the tools of the demonstration if it is the model."""
    from loom_core.agent.teams.agent_tool import AgentTool

    tools: list[Tool] = [AgentTool(member) for member in members]
    if is_demonstration(config):
        from loom_agent.profiles.demonstration import demonstration_tools

        tools += demonstration_tools()
    return tools


def _instructions(profile: ProfileConfig) -> Instructions:
    """Return the instructions of a profile; with a context, they are filled with the data of the run."""
    if profile.context is None:
        return profile.system_prompt

    def filled(context: RunContext[object]) -> str:
        return fill_placeholders(profile.system_prompt, context.data)

    return filled


def _search(knowledge: Federation | None) -> list[Tool]:
    if knowledge is None:
        return []
    from loom_agent.profiles.local_search import LocalSearchTool

    return [LocalSearchTool(knowledge)]


def create_compaction(config: CompactionConfig) -> Compaction | None:
    """Create the compaction settings of a profile. Blocks, as it may ask the keyring.

    Raises:
        ConfigError: a model or a compressor cannot be created as configured.
    """
    from loom_core.agent.compaction_settings import Compaction

    if not config.enabled:
        return None
    llm: LLMProvider | None = None if config.model is None else create_model(config.model)
    shares: dict[str, Any] = config.model_dump(include={"window", "warn_at", "apply_at", "target"})
    compressor = None
    if config.compressor is not None:
        from loom_core.plugins import create

        compressor = create("compressor", config.compressor)
    return Compaction(llm=llm, compressor=compressor, **shares)
