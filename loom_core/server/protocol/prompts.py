"""Prompts: message templates that a host offers as commands."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import GetPromptResult, PromptArgument
from mcp_types import Prompt as PromptDefinition
from mcp_types import PromptMessage as PromptBlock

from loom_core.errors import NotFoundError
from loom_core.server.calls.client_input import input_required
from loom_core.server.calls.context import ToolContext
from loom_core.server.protocol.arguments import arguments_of, values_for
from loom_core.server.protocol.content import Content, block
from loom_core.server.protocol.errors import protocol_error
from loom_core.tools.function_arguments import FunctionArguments
from loom_core.tools.names import closest

if TYPE_CHECKING:
    from mcp.server import Server, ServerRequestContext

__all__ = ["Prompt", "PromptFunction", "PromptMessage", "Prompts"]


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message of a prompt, with the role of the user or of the model."""

    content: Content
    role: Literal["user", "assistant"] = "user"


PromptFunction = Callable[..., Awaitable[Sequence[PromptMessage]]]
"""An `async def` whose annotated parameters are strings; it may also have one of type `ToolContext`."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A function with its prompt definition. Created by `Prompt.of`, which validates both.

    Attributes:
        name: name for programs.
        arguments: its arguments; all are text, as a user types them.
        definition: its definition in `prompts/list`.
    """

    name: str
    arguments: FunctionArguments
    definition: PromptDefinition
    _function: PromptFunction

    @classmethod
    def of(cls, function: PromptFunction, *, name: str, title: str, description: str) -> Prompt:
        """Create a prompt from a function; parameters as in `LoomServer.prompt`.

        Raises:
            ValueError: the name, description or signature is invalid.
        """
        description = description or inspect.getdoc(function) or ""
        if not title.strip() or not description.strip():
            raise ValueError(f"prompt {name!r}: a title and a description are required")
        arguments = arguments_of(function, name, kind="prompt")
        _check_text(function, name, arguments.context_name)
        definition = PromptDefinition(
            name=name, title=title, description=description, arguments=_prompt_arguments(arguments.schema)
        )
        return cls(name, arguments, definition, function)

    async def get(self, given: dict[str, str], context: ToolContext) -> GetPromptResult:
        """Validate the arguments, and get the messages from the function.

        Raises:
            InvalidInputError: the arguments are not valid.
            Exception: whatever the function raises.
        """
        messages = await self._function(**values_for(self.arguments, given, context))
        return GetPromptResult(
            description=self.definition.description,
            messages=[PromptBlock(role=said.role, content=block(said.content)) for said in messages],
        )


def _prompt_arguments(schema: dict[str, Any]) -> list[PromptArgument]:
    required = schema.get("required", ())
    return [
        PromptArgument(name=name, description=argument.get("description"), required=name in required)
        for name, argument in schema["properties"].items()
    ]


def _check_text(function: PromptFunction, name: str, context_name: str) -> None:
    for argument, hint in typing.get_type_hints(function).items():
        if argument not in ("return", context_name) and hint is not str:
            raise ValueError(f"prompt {name!r}: argument {argument!r} is not text; users type all of them")


class Prompts:
    """Prompts that a host can offer as commands, in the order of registration.

    A server without prompts returns an empty list, not an unknown method: the conformance suite requires
    that.
    """

    def __init__(self, protocol: Server[object]) -> None:
        """Start without prompts.

        Args:
            protocol: the SDK's server, which gets the handlers.
        """
        self._prompts: dict[str, Prompt] = {}
        protocol.add_request_handler("prompts/list", types.PaginatedRequestParams, self._on_list)
        protocol.add_request_handler("prompts/get", types.GetPromptRequestParams, self._on_get)

    def add(self, prompt: Prompt) -> None:
        """Register a prompt.

        Raises:
            ValueError: its name is taken.
        """
        if prompt.name in self._prompts:
            raise ValueError(f"prompt {prompt.name!r} is registered already")
        self._prompts[prompt.name] = prompt

    def __contains__(self, name: str) -> bool:
        """Return whether there is a prompt of that name."""
        return name in self._prompts

    def get(self, name: str) -> Prompt:
        """Return the prompt of that name.

        Raises:
            NotFoundError: there is no such prompt.
        """
        if name not in self._prompts:
            raise NotFoundError(f"There is no prompt {name!r}{closest(name, self._prompts)}.")
        return self._prompts[name]

    async def _on_list(
        self, _ctx: ServerRequestContext[Any, Any], _params: types.PaginatedRequestParams
    ) -> types.ListPromptsResult:
        definitions = [prompt.definition for prompt in self._prompts.values()]
        return types.ListPromptsResult(prompts=definitions)

    async def _on_get(
        self, ctx: ServerRequestContext[Any, Any], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        try:
            prompt = self.get(params.name)
            return await prompt.get(dict(params.arguments or {}), ToolContext.of(ctx))
        except MCPError:
            raise
        except Exception as error:
            if needed := input_required(error):
                return needed
            raise protocol_error(error, f"prompt {params.name!r}") from error
