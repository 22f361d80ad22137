"""Handoffs: tools by which an agent hands the conversation over to another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import Field

from loom_core.cjk import is_chinese
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import Tool, ToolOutput

if TYPE_CHECKING:
    from loom_core.agent.agent import Agent

__all__ = ["Handoff", "handoff_targets", "with_handoffs"]

_TO = "hand_over_to"
_NOTE = "note"

_PROMPT = (
    "You work with other agents. If one is better suited, hand the conversation over with its tool, without "
    "a message: it sees what was said, and answers. Do yourself what you can."
)
_MESSAGE = "({before} has handed the conversation over to you: continue it.{note})"
_MESSAGE_ZH = "（{before} 已将对话转交给你，请接着处理。{note}）"


@dataclass(frozen=True, slots=True)
class Handoff:
    """Handoff of a conversation, which ended the run of the agent that had it.

    Attributes:
        to: name of the agent that gets the conversation.
        note: what it needs to know in addition; may be empty.
    """

    to: str
    note: str

    @classmethod
    def of(cls, structured: object) -> Handoff | None:
        """Return the handoff that a run ended with, from its `structured` data; None if it answered."""
        if not isinstance(structured, Mapping) or _TO not in structured:
            return None
        said = cast("Mapping[str, Any]", structured)
        return cls(str(said[_TO]), str(said.get(_NOTE, "")))

    def message(self, before: str, *, goal: str) -> str:
        """Return the message to the agent that gets the conversation.

        Args:
            before: name of the agent that handed it over.
            goal: what the user said; it decides the language.
        """
        if is_chinese(goal):
            return _MESSAGE_ZH.format(before=before, note=self.note)
        return _MESSAGE.format(before=before, note=f" {self.note}".rstrip())


def handoff_targets(
    names: Sequence[str], handoffs: Mapping[str, Sequence[str]] | None
) -> dict[str, list[str]]:
    """Return the agents that each agent may hand over to.

    Args:
        names: names of all agents.
        handoffs: the allowed ones by agent; a missing agent may hand over to none. None allows all.
    """
    allowed = dict.fromkeys(names, names) if handoffs is None else handoffs
    return {name: [each for each in dict.fromkeys(allowed.get(name, ())) if each != name] for name in names}


def with_handoffs(agents: Mapping[str, Agent], targets: Mapping[str, Sequence[str]]) -> dict[str, Agent]:
    """Return the agents with the tools by which they hand over.

    Args:
        agents: the agents by name.
        targets: the agents that each may hand over to.

    Raises:
        ConfigError: an agent has a tool of the same name.
    """
    return {
        name: agent.extend(tools=[_tool(agents[each]) for each in targets[name]], system_prompt=_PROMPT)
        if targets[name]
        else agent
        for name, agent in agents.items()
    }


def _tool(agent: Agent) -> Tool:
    @tool(
        name=f"handoff_to_{agent.name}",
        description=f"Hand the conversation over to {agent.name}: {agent.description}",
        read_only=True,
        open_world=False,
        concurrency_safe=False,
    )
    async def handoff(
        note: Annotated[
            str, Field(description="What it needs to know besides what was said; may be empty.")
        ] = "",
    ) -> ToolOutput:
        handed = {_TO: agent.name, _NOTE: note.strip()}
        text = f"The conversation is handed over to {agent.name}."
        return ToolOutput(text, handed, ends_run=True, is_handoff=True)

    return handoff
