"""The prompts of a server: which there are, and the protocol's requests about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from loom_core.errors import NotFoundError
from loom_core.server.client_input import input_required
from loom_core.server.context import ToolContext
from loom_core.server.failure import protocol_error
from loom_core.tools.function_arguments import closest

if TYPE_CHECKING:
    from mcp.server import Server, ServerRequestContext

    from loom_core.server.prompt import Prompt

__all__ = ["Prompts"]


class Prompts:
    """What a host can offer as commands, in the order of registration.

    A server without any gives an empty list rather than an unknown method: what the conformance suite asks of
    every server.
    """

    def __init__(self, protocol: Server[object]) -> None:
        """Start without any.

        Args:
            protocol: the SDK's server, which gets the handlers.
        """
        self._prompts: dict[str, Prompt] = {}
        protocol.add_request_handler("prompts/list", types.PaginatedRequestParams, self._on_list)
        protocol.add_request_handler("prompts/get", types.GetPromptRequestParams, self._on_get)

    def add(self, prompt: Prompt) -> None:
        """Offer one more.

        Raises:
            ValueError: its name is taken.
        """
        if prompt.name in self._prompts:
            raise ValueError(f"prompt {prompt.name!r} is registered already")
        self._prompts[prompt.name] = prompt

    def __contains__(self, name: str) -> bool:
        """Whether there is one of that name."""
        return name in self._prompts

    def get(self, name: str) -> Prompt:
        """The prompt of that name.

        Raises:
            NotFoundError: there is none.
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
