"""Prompts: what a host offers its user as a command, and what the model is then told."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mcp_types import GetPromptResult, PromptArgument
from mcp_types import Prompt as PromptDefinition
from mcp_types import PromptMessage as PromptBlock

from loom_core.server.arguments import arguments_of, values_for
from loom_core.server.content import Content, block
from loom_core.server.context import ToolContext
from loom_core.tools.function_arguments import FunctionArguments

__all__ = ["Prompt", "PromptFunction", "PromptMessage"]


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
    arguments: FunctionArguments
    definition: PromptDefinition
    _function: PromptFunction

    @classmethod
    def of(cls, function: PromptFunction, *, name: str, title: str, description: str) -> Prompt:
        """Make a prompt of a function; parameters as in `LoomServer.prompt`.

        Raises:
            ValueError: the name, description or signature is not as it must be.
        """
        description = description or inspect.getdoc(function) or ""
        if not title.strip() or not description.strip():
            raise ValueError(f"prompt {name!r}: a title and a description are required")
        arguments = arguments_of(function, name, kind="prompt")
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
        messages = await self._function(**values_for(self.arguments, given, context))
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
