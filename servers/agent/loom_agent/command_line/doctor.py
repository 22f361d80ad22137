"""`loom-agent-server doctor`: health checks of the profiles, knowledge bases, MCP servers and runs."""

from __future__ import annotations

import re
from contextlib import closing
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING

from loom_agent import PROGRAM
from loom_agent.profiles.agent_file import read_agent_file
from loom_agent.profiles.local_knowledge import can_search, how_to_search
from loom_agent.profiles.model_choice import choose_model, create_model
from loom_agent.profiles.profile_config import EVERYTHING
from loom_core.errors import ConfigError, LoomError
from loom_core.knowledge.sources.catalogue import Catalogue
from loom_core.server.cli.health import HealthSection, fine, problem, problem_from_error, warning
from loom_core.server.doctor.check_runner import Check, blocking
from loom_core.server.doctor.language_model import language_model_variables
from loom_core.server.doctor.runs import runs_section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_agent.profiles.agent_file import AgentFile
    from loom_agent.profiles.profile_config import ProfileConfig
    from loom_agent.settings import Settings
    from loom_core.server.cli.health import Finding
    from loom_core.tools.interface import Tool

__all__ = ["own_checks", "variables"]

_KEYRING_SECONDS = 15.0  # it may ask the user
_PLAIN = re.compile(r"\w+")  # a plain name: neither a pattern nor a tool of an MCP server
_CORRECT = "Correct it there."


def own_checks(settings: Settings) -> list[Check]:
    """Return the checks of this server, in addition to those of all servers."""
    return [
        Check("configuration", blocking(partial(_configuration, settings)), seconds=_KEYRING_SECONDS),
        Check("knowledge", blocking(partial(_knowledge, settings)), seconds=_KEYRING_SECONDS),
        Check("MCP servers", blocking(partial(_servers, settings)), seconds=_KEYRING_SECONDS),
        Check("runs", partial(_runs, settings), seconds=_KEYRING_SECONDS),
    ]


def variables(settings: Settings) -> set[str]:
    """Return the environment variables that may hold its keys."""
    usual = language_model_variables()
    try:
        return usual | {*_file(settings).variables}
    except ConfigError:  # reported by its own check
        return usual


def _file(settings: Settings) -> AgentFile:
    return read_agent_file(settings.config, required=settings.config_given, provider=settings.provider)


def _configuration(settings: Settings) -> HealthSection:
    shown = "none: one profile"
    if settings.config_given or settings.config.exists():
        shown = str(settings.config)
    facts: dict[str, object] = {"file": shown}
    try:
        file = _file(settings)
    except ConfigError as error:
        finding = problem_from_error(error, "configuration-unreadable", remedy=_CORRECT)
        return HealthSection(name="configuration", facts=facts, findings=[finding])
    findings: list[Finding] = []
    models: dict[str, str] = {}
    for name, profile in file.profiles.items():
        models[name] = _model(name, profile, settings, findings)
        tools = _tools(name, profile, settings, findings)
        findings += _skills(name, profile, settings)
        findings += _compaction(name, profile)
        if tools is not None:
            findings += _rules(name, profile, settings, tools)
    if not findings:
        findings.append(fine("profiles", "Every profile has a usable model."))
    facts |= {"profiles": models, "default": file.default}
    return HealthSection(name="configuration", facts=facts, findings=findings)


def _model(name: str, profile: ProfileConfig, settings: Settings, findings: list[Finding]) -> str:
    """Return the model of a profile; add its problems to the findings."""
    if not profile.needs_model:
        return profile.composition
    try:
        config, why = choose_model(profile, settings)
        llm = create_model(config)
    except ConfigError as error:
        told = ConfigError(f"The profile {name!r}: {error.message}", advice=error.advice)
        findings.append(problem_from_error(told, "model-unusable", remedy=_CORRECT))
        return "none"
    return f"{llm.name}/{llm.model}".rstrip("/") + f" ({why})"


def _tools(
    name: str, profile: ProfileConfig, settings: Settings, findings: list[Finding]
) -> list[Tool] | None:
    """Return the tools of a profile; None if they cannot be created, which is added to the findings."""
    from loom_agent.profiles.profile_tools import profile_tools

    try:
        return profile_tools(profile.tools, folder=settings.config.parent)
    except LoomError as error:
        told = ConfigError(f"The profile {name!r}: {error.message}", advice=error.advice)
        findings.append(problem_from_error(told, "tools-unusable", remedy=_CORRECT))
        return None


def _skills(name: str, profile: ProfileConfig, settings: Settings) -> list[Finding]:
    from loom_core.agent.skills.skill_set import SkillSet

    try:
        skills = SkillSet.load(profile.skills, folder=settings.config.parent)
    except ConfigError as error:
        told = ConfigError(f"The profile {name!r}: {error.message}", advice=error.advice)
        return [problem_from_error(told, "skills-unusable", remedy=_CORRECT)]
    return [
        warning("skill-problem", f"The profile {name!r}: {each.message}", each.advice or _CORRECT)
        for each in skills.problems
    ]


def _compaction(name: str, profile: ProfileConfig) -> list[Finding]:
    from loom_agent.profiles.agents import create_compaction

    try:
        create_compaction(profile.compaction)
    except ConfigError as error:
        told = ConfigError(f"The profile {name!r}: {error.message}", advice=error.advice)
        return [problem_from_error(told, "compaction-unusable", remedy=_CORRECT)]
    return []


def _rules(name: str, profile: ProfileConfig, settings: Settings, tools: Sequence[Tool]) -> list[Finding]:
    """Check for rules about unknown tools, which have no effect. Tools of MCP servers are not checked."""
    from loom_agent.profiles.demonstration import SEARCH, demonstration_tools
    from loom_core.agent.skills.skill_set import SKILL_TOOLS
    from loom_core.agent.user_memory.memory import UserMemory
    from loom_core.agent.user_memory.recall import memory_tools
    from loom_core.tools.builtin.config import (
        BuiltinToolsConfig,
        FileToolsConfig,
        HttpToolsConfig,
        ShellToolConfig,
        builtin_tools,
    )

    here = settings.config.parent
    every = BuiltinToolsConfig(
        files=FileToolsConfig(root=here, write=True),
        http=HttpToolsConfig(write=True),
        shell=ShellToolConfig(root=here, enabled=True),
    )
    of_users = memory_tools(UserMemory(settings.user_memory))
    every_tool = (*builtin_tools(every), *tools, *demonstration_tools(), *of_users)
    names = {SEARCH, *SKILL_TOOLS, *profile.agents, *(tool.name for tool in every_tool)}
    unknown = [
        rule.tool for rule in profile.permissions if _PLAIN.fullmatch(rule.tool) and rule.tool not in names
    ]
    return [
        warning(
            "rule-without-tool",
            f"The profile {name!r}: a rule is about the tool {tool!r}, which does not exist.",
            f"{_nearest(tool, sorted(names))}Tools of MCP servers are written as SERVER:TOOL.",
        )
        for tool in unknown
    ]


def _knowledge(settings: Settings) -> HealthSection | None:
    with closing(Catalogue(settings.home, database=settings.database)) as catalogue:
        entries = catalogue.list()
    try:
        profiles = _file(settings).profiles
    except ConfigError:  # reported by its own check
        return None
    there = {entry.name for entry in entries if not entry.problem}
    findings: list[Finding] = []
    for name, profile in profiles.items():
        if profile.knowledge != EVERYTHING:
            findings += [
                problem(
                    "knowledge-missing",
                    f"The profile {name!r} names the knowledge base {base!r}, which does not exist or is not "
                    "usable.",
                    "Create it with loom-kb, or remove it from the profile.",
                )
                for base in profile.knowledge
                if base not in there
            ]
    if there and not can_search():
        what = "The packages for searching the knowledge bases of this machine are not installed."
        findings.append(warning("knowledge-unsearchable", what, how_to_search()))
    if not there and not findings:
        return None
    return HealthSection(name="knowledge", facts={"knowledge bases": sorted(there)}, findings=findings)


def _servers(settings: Settings) -> HealthSection | None:
    from loom_core.mcp_client.configuration.servers import read_servers

    found = read_servers(settings.home)
    if not found.ready and not found.problems:
        return None
    remedy = f"Test the servers: {PROGRAM} mcp test --all"
    findings = [
        problem("server-unusable", f"{name}: {each.placed}", each.advice or remedy)
        for name, each in found.problems.items()
    ]
    return HealthSection(
        name="MCP servers", facts={"servers": [server.name for server in found.ready]}, findings=findings
    )


def _nearest(name: str, known: Sequence[str]) -> str:
    """Suggest a similar name, if there is one."""
    near = get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]!r}? " if near else ""


async def _runs(settings: Settings) -> HealthSection | None:
    return await runs_section(settings.journal, see=f"{PROGRAM} runs show", drive=f"{PROGRAM} runs resume")
