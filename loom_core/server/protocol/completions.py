"""Completions: suggestions for the value of an argument."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import mcp_types as types

from loom_core.errors import NotFoundError
from loom_core.json_repair import well_formed
from loom_core.server.calls.context import ToolContext, bind_call_context
from loom_core.server.protocol.errors import protocol_error
from loom_core.tools.names import closest

if TYPE_CHECKING:
    from mcp.server import Server, ServerRequestContext

    from loom_core.server.protocol.prompts import Prompts
    from loom_core.server.protocol.resources import Resources

__all__ = ["COMPLETION_LIMIT", "CompleteFunction", "Completions"]

COMPLETION_LIMIT = 100
"""Maximum number of values in one answer, by the protocol."""

CompleteFunction = Callable[..., Awaitable[Sequence[str]]]
"""Completer: takes the typed text and the other arguments so far; returns matching values, best first.

    async def names(typed: str, others: Mapping[str, str]) -> list[str]

More than `COMPLETION_LIMIT` values are truncated, so one more is enough to signal that there are more. It may
also have a parameter of type `ToolContext`.
"""

_Owner = types.PromptReference | types.ResourceTemplateReference


class Completions:
    """Registry of completers by argument. A server declares the capability if there is one."""

    def __init__(self, protocol: Server[object], prompts: Prompts, resources: Resources) -> None:
        """Start without completers.

        Args:
            protocol: the SDK's server, which gets the handler.
            prompts: the registered prompts.
            resources: the registered resource templates.
        """
        self._protocol = protocol
        self._prompts = prompts
        self._resources = resources
        self._functions: dict[tuple[str, str], Callable[..., Awaitable[Sequence[str]]]] = {}

    def add(self, function: CompleteFunction, argument: str, *, prompt: str, resource: str) -> None:
        """Register the completer of an argument; parameters as in `LoomServer.completion`.

        Raises:
            ValueError: there is no such prompt, template or argument, or it has a completer already.
        """
        if bool(prompt) == bool(resource):
            raise ValueError(f"completion of {argument!r}: name either a prompt or a resource template")
        if not inspect.iscoroutinefunction(function):
            raise ValueError(f"completion of {argument!r}: the function must be async")
        owner = prompt or resource
        try:
            self._check(argument, prompt=prompt, resource=resource)
        except NotFoundError as error:
            raise ValueError(f"completion of {argument!r}: {error} Register it first.") from error
        if (owner, argument) in self._functions:
            raise ValueError(f"completion of {argument!r} of {owner!r} is registered already")
        self._functions[owner, argument] = bind_call_context(function)
        self._protocol.add_request_handler(
            "completion/complete", types.CompleteRequestParams, self._on_complete
        )

    def _check(self, argument: str, *, prompt: str, resource: str) -> None:
        names: Sequence[str] = (
            list(self._prompts.get(prompt).arguments.schema["properties"])
            if prompt
            else self._resources.variables(resource)
        )
        if argument not in names:
            raise NotFoundError(
                f"{prompt or resource!r} has no argument {argument!r}{closest(argument, names)}."
            )

    async def _on_complete(
        self, ctx: ServerRequestContext[Any, Any], params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        argument = params.argument
        match params.ref:
            case types.PromptReference(name=name):
                prompt, resource = name, ""
            case types.ResourceTemplateReference(uri=uri):
                prompt, resource = "", uri
        owner = prompt or resource
        try:
            self._check(argument.name, prompt=prompt, resource=resource)
            complete = self._functions.get((owner, argument.name))
            others = params.context.arguments if params.context else None
            found = await complete(ToolContext.of(ctx), argument.value, others or {}) if complete else ()
        except Exception as error:
            raise protocol_error(error, f"the completion of {argument.name!r} of {owner!r}") from error
        values = [well_formed(value) for value in found[:COMPLETION_LIMIT]]
        return types.CompleteResult(
            completion=types.Completion(values=values, has_more=len(found) > COMPLETION_LIMIT)
        )
