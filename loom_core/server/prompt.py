"""Prompts: what a host offers its user as a command, and what the model is then told."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from mcp_types import GetPromptResult, PromptArgument
from mcp_types import Prompt as PromptDefinition
from mcp_types import PromptMessage as PromptBlock

from loom_core.server.arguments import ToolArguments
from loom_core.server.content import Content, block

if TYPE_CHECKING:
    from loom_core.server.context import ToolContext

__all__ = ["Prompt", "PromptFunction", "PromptMessage"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message of a prompt, said by the user or by the model."""

    content: Content
    role: Literal["user", "assistant"] = "user"


PromptFunction = Callable[..., Awaitable[Sequence[PromptMessage]]]
"""An `async def` whose annotated parameters are strings; it may have one of type `ToolContext` besides."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A function and what is said about it. Made by `Prompt.of`, which checks all of it.

    Attributes:
        name: how programs call it.
        arguments: what it accepts; all of it is text, for a user types it.
        definition: what `prompts/list` says of it.
    """

    name: str
    arguments: ToolArguments
    definition: PromptDefinition
    _function: PromptFunction

    @classmethod
    def of(cls, function: PromptFunction, *, name: str, title: str, description: str) -> Prompt:
        """Make a prompt of a function; parameters as in `LoomServer.prompt`.

        Raises:
            ValueError: the name, description or signature is not as it must be.
        """
        description = description or inspect.getdoc(function) or ""
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"prompt {name!r}: a name is lower case letters, digits and _, at most 40 of them"
            )
        if not title.strip() or not description.strip():
            raise ValueError(f"prompt {name!r}: a title and a description are required")
        if not inspect.iscoroutinefunction(function):
            raise ValueError(
                f"prompt {name!r}: the function must be async; blocking work belongs in a thread"
            )
        arguments = ToolArguments.of(function, name, kind="prompt")
        _check_text(function, name, arguments.context_name)
        definition = PromptDefinition(
            name=name, title=title, description=description, arguments=_defined(arguments.schema)
        )
        return cls(name, arguments, definition, function)

    async def get(self, given: dict[str, str], context: ToolContext) -> GetPromptResult:
        """Check the arguments and ask the function for the messages.

        Raises:
            InvalidInputError: the arguments are not valid.
            Exception: whatever the function raises.
        """
        values = self.arguments.parse(given)
        if self.arguments.context_name:
            values[self.arguments.context_name] = context
        messages = await self._function(**values)
        return GetPromptResult(
            description=self.definition.description,
            messages=[PromptBlock(role=said.role, content=block(said.content)) for said in messages],
        )


def _defined(schema: dict[str, Any]) -> list[PromptArgument]:
    required = schema.get("required", ())
    return [
        PromptArgument(name=name, description=argument.get("description"), required=name in required)
        for name, argument in schema["properties"].items()
    ]


def _check_text(function: PromptFunction, name: str, context_name: str) -> None:
    for argument, hint in typing.get_type_hints(function).items():
        if argument not in ("return", context_name) and hint is not str:
            raise ValueError(f"prompt {name!r}: argument {argument!r} is not text; users type all of them")
