"""Skills: which of them apply together, and the agent that works with their tools only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, cast

from loom_core.errors import LoomError
from loom_core.flow.config.localization import localize
from loom_core.flow.config.models import SKILLS_PROFILE
from loom_core.flow.expressions import ExpressionValues, fill, text_of
from loom_core.flow.responses.phrases import Phrases, language_of_run
from loom_core.runs.commands import HumanInputPolicy
from loom_core.runs.memory import Memory
from loom_core.runs.run import Budget

if TYPE_CHECKING:
    from loom_core.agent.loop import RunLoop
    from loom_core.flow.config.models import FlowFile, SkillConfig
    from loom_core.flow.understanding.language import Language
    from loom_core.llm.interface import LLMProvider
    from loom_core.llm.messages import Message
    from loom_core.runs.journal import Journal, RunLog
    from loom_core.runs.memory import MemoryHit, MemorySession
    from loom_core.runs.run import RunRequest
    from loom_core.tools.auditing.audit import AuditLog
    from loom_core.tools.execution.scheduler import Scheduler
    from loom_core.tools.interface import Tool
    from loom_core.tools.permission.permissions import Permissions
    from loom_core.tools.toolbox import Toolbox

__all__ = ["SkillAgent", "active_skills", "free_tools", "skills_in_order"]

_BUDGET = Budget(iterations=8, tokens=60_000, tool_calls=16, seconds=300.0)

_SKILLS = (
    "These skills apply to what the user wants, the most important first. Do what they say, with these tools "
    "and nothing else. Ask in your final answer for what only the user knows. Say what was done and what was "
    "not, as the tools say it."
)
_TOOL = (
    "Call the tool `{tool}` for the user's message{given}, unless something that it needs is missing: ask "
    "for that in the final answer. Report its result, as the tool gives it."
)


def skills_in_order(file: FlowFile) -> list[SkillConfig]:
    """Return the enabled skills by descending priority, then in the order of the file."""
    return sorted((each for each in file.skills if each.enabled), key=lambda skill: -skill.priority)


def free_tools(file: FlowFile, tools: Iterable[Tool]) -> list[Tool]:
    """Return the system tools that belong to no skill; a skill's tools are available while it applies."""
    bound = {name for skill in file.skills for name in skill.tools}
    own = {each.name for each in file.system_tools if each.enabled}
    return [tool for tool in tools if tool.name in own and tool.name not in bound]


def active_skills(file: FlowFile, chosen: Sequence[str]) -> list[SkillConfig]:
    """Return the skills that apply, of those that were chosen.

    A skill does not apply if one in its `depends_on` is missing. If one of two skills excludes the other, the
    one with the higher rank applies: by priority, then by order in the file.
    """
    wanted = [skill for skill in skills_in_order(file) if skill.id in chosen]
    while True:
        kept: list[SkillConfig] = []
        there = {skill.id for skill in wanted}
        for skill in wanted:
            excluded = any(skill.id in above.excludes for above in kept)
            bars = any(above.id in skill.excludes for above in kept)
            if not excluded and not bars and there.issuperset(skill.depends_on):
                kept.append(skill)
        if len(kept) == len(wanted):
            return kept
        wanted = kept


class _ReadOnlyMemory(Memory):
    """Read-only memory of a session; the turn writes the conversation."""

    def __init__(self, texts: Callable[[str], Any]) -> None:
        self._texts = texts

    async def messages(self, session_id: str, *, limit: int | None = None) -> list[Message]:
        """Return the messages; see `Memory.messages`."""
        found = cast("list[Message]", await self._texts(session_id))
        return found if limit is None else found[-limit:] if limit else []

    async def replace(self, session_id: str, messages: Sequence[Message]) -> None:
        """Do nothing, as all methods that write."""

    async def add(self, session_id: str, message: Message) -> None:
        """Do nothing; see `replace`."""

    async def clear(self, session_id: str) -> None:
        """Do nothing; see `replace`."""

    async def sessions(self) -> list[MemorySession]:
        """Return an empty list."""
        return []

    async def search(self, query: str, *, limit: int = 10, session_id: str = "") -> list[MemoryHit]:
        """Return an empty list."""
        return []


class SkillAgent:
    """Agent for messages to which skills apply, or that need a single tool.

    Each run is in the journal, with a budget, and may call only the tools of its skills. Calls that need
    approval wait for the session's user.
    """

    def __init__(
        self,
        llm: LLMProvider,
        *,
        file: FlowFile,
        toolbox: Toolbox,
        journal: Journal,
        texts: Callable[[str], Any],
        permissions: Permissions | Literal["allow", "ask", "deny"],
        audit: AuditLog | None = None,
        scheduler: Scheduler | None = None,
        answer_seconds: float | None = None,
    ) -> None:
        from loom_core.agent.agent import Agent  # a server that only lists its tools needs no model

        self._file = file
        self._toolbox = toolbox
        self._answer_seconds = answer_seconds
        self._agent = Agent(
            llm,
            toolbox=toolbox,
            memory=_ReadOnlyMemory(texts),
            journal=journal,
            permissions=permissions,
            budget=_BUDGET,
            system_prompt=file.basic_settings.instructions,
            name=SKILLS_PROFILE,
            scheduler=scheduler,
            audit=audit,
        )

    def request(
        self,
        message: str,
        *,
        skills: Sequence[SkillConfig] = (),
        tool: str = "",
        arguments: Mapping[str, Any] | None = None,
        caller: str,
        route: Mapping[str, Any],
        idempotency_key: str = "",
    ) -> RunRequest:
        """Build the request of a run.

        A tool is called without a skill; its arguments are those that are known.
        """
        names = [tool] if tool else list(dict.fromkeys(name for skill in skills for name in skill.tools))
        return self._agent.request(
            message,
            caller=caller,
            allowed_tools=names,
            idempotency_key=idempotency_key,
            metadata={
                "kind": "skills",
                "skills": [skill.id for skill in skills],
                "tool": tool,
                "arguments": dict(arguments or {}),
                "route": dict(route),
            },
        )

    def loop(self, log: RunLog) -> RunLoop:
        """Return the executor of a run."""
        metadata = log.run.request.metadata
        request = log.run.request
        asking = self._human_input_policy(
            request, language_of_run(request, setting=self._file.basic_settings.language)
        )
        return self._agent.extend(system_prompt=self._prompt(metadata), asking=asking).loop(log)

    def _human_input_policy(self, request: RunRequest, language: Language) -> HumanInputPolicy:
        """Return the policy that asks the user for approval, in their language and the file's words."""
        phrases, file = Phrases(language), localize(self._file, language)
        skills = active_skills(file, cast("list[str]", request.metadata.get("skills", [])))

        def confirmation(tool: Tool, arguments: Mapping[str, Any]) -> str:
            own = [each.confirm for each in file.system_tools if each.name == tool.name]
            own += [skill.confirm for skill in skills if tool.name in skill.tools]
            if template := next((each for each in own if isinstance(each, str)), ""):
                return text_of(fill(template, ExpressionValues(inputs=arguments)))
            return phrases.confirmation(tool, arguments)

        return HumanInputPolicy(
            accepts_commands=True,
            seconds=self._answer_seconds,
            unapproved=phrases.unapproved,
            confirmation=confirmation,
        )

    def _prompt(self, metadata: Mapping[str, Any]) -> str:
        tool = str(metadata.get("tool", ""))
        if tool:
            given = metadata.get("arguments")
            with suppress(LoomError):
                tool = self._toolbox.find(tool).name
            return _TOOL.format(tool=tool, given=f", with {given}" if given else "")
        chosen = cast("list[str]", metadata.get("skills", []))
        lines = [
            f"{number}. When: {skill.condition}\n   Do: {skill.action}"
            for number, skill in enumerate(active_skills(self._file, chosen), 1)
        ]
        return "\n".join([_SKILLS, *lines])
