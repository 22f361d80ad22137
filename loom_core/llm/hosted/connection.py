"""Connection lifecycle: open at the first request of an event loop, close with the provider."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from anyio.lowlevel import current_token

from loom_core.errors import ConfigError, LLMError
from loom_core.installation import how_to_install
from loom_core.keys import find_key
from loom_core.llm.hosted.prompted_tools import PromptedTools
from loom_core.llm.transport.protocol import Connection, interrupted_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.lowlevel import EventLoopToken

    from loom_core.llm.transport.protocol import WireClient
    from loom_core.llm.vendors import ProviderSpec

__all__ = ["ConnectionManager"]


class ConnectionManager:
    """Creates the wire client of a provider, with its key, and closes it.

    A request remembers `closings` from its start. If the connection is closed in the meantime, the request
    neither reopens it nor continues on it: nothing would close that connection again.

    Attributes:
        closings: how often it was closed.
    """

    def __init__(
        self,
        way: Connection | WireClient,
        *,
        spec: ProviderSpec,
        model: str,
        before: Callable[[], object] | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            way: the connection settings, or a wire client.
            spec: the vendor.
            model: the model.
            before: further slow set-up, run once in a thread before the first request.
        """
        self.closings = 0
        self._way = way
        self._spec = spec
        self._model = model
        self._before = before
        self._wire: WireClient | None = None
        self._loop: EventLoopToken | None = None  # where the wire client was created
        self._opening = anyio.Lock()

    def problem(self) -> str:
        """Return why it cannot be opened, as far as known; see `LLMProvider.problem`."""
        if not isinstance(self._way, Connection):
            return ""
        package = "anthropic" if self._spec.wire == "anthropic_messages" else "openai"
        if find_spec(package) is None:
            return f"the package {package} is missing. {how_to_install(f'loom-mcp-core[{package}]')}"
        try:
            _ = self._with_key(self._way)
        except LLMError as error:
            return f"{error.message} {error.advice}".rstrip(" .")
        return ""

    async def open(self, *, closings: int) -> WireClient:
        """Return the wire client; create one for each event loop, as connections belong to their loop.

        Args:
            closings: the value of `closings` when the request began.

        Raises:
            LLMError: there is no key; or, with failure `interrupted`, it was closed since.
        """
        self.check(closings=closings)
        here = current_token()
        if self._wire is not None and self._loop == here:
            return self._wire
        async with self._opening:
            if self._loop != here:
                await self._close_client()
            if self._wire is None:
                made = await anyio.to_thread.run_sync(self._create_client, abandon_on_cancel=True)
                self.check(closings=closings)  # the new client has no connections yet
                self._wire, self._loop = made, here
            return self._wire

    def check(self, *, closings: int) -> None:
        """Check that the connection was not closed since a request began.

        Raises:
            LLMError: with failure `interrupted`: it was closed.
        """
        if self.closings != closings:
            raise interrupted_error(self._spec, self._model)

    async def aclose(self) -> None:
        """Close connections. Requests in progress end; later ones connect again."""
        self.closings += 1
        await self._close_client()

    async def _close_client(self) -> None:
        wire, self._wire = self._wire, None
        if wire is None:
            return
        try:
            await wire.aclose()
        except RuntimeError:  # connections of a finished event loop cannot be closed any more
            if self._loop == current_token():
                raise

    def _create_client(self) -> WireClient:
        """Create the wire client. It imports the SDK and may read the keyring: call it in a thread."""
        if self._before is not None:
            self._before()
        client = self._create_format_client()
        return client if self._spec.supports_tools else PromptedTools(client, self._spec)

    def _create_format_client(self) -> WireClient:
        """Create the client of the spec's wire format, or return the given one."""
        if not isinstance(self._way, Connection):
            return self._way
        connection = self._with_key(self._way)
        if self._spec.wire == "anthropic_messages":
            from loom_core.llm.anthropic_messages.client import AnthropicMessagesClient

            return AnthropicMessagesClient(connection)
        from loom_core.llm.chat_completions.client import ChatCompletionsClient

        return ChatCompletionsClient(connection)

    def _with_key(self, connection: Connection) -> Connection:
        """Add the key from the environment or the keyring, if there is none."""
        if connection.has_key:
            return connection
        variable = self._spec.key_variable
        try:
            key = find_key(variable, keyring=self._spec.needs_key) if variable else None
        except ConfigError as error:
            raise self._missing_key_error(error.message, error.advice) from error
        if key is None and self._spec.needs_key:
            advice = "Give it as `api_key`."
            if variable:
                advice = (
                    f"Set the environment variable {variable}, or put it into the keyring under that name."
                )
            raise self._missing_key_error(f"There is no key for {self._spec.title}.", advice)
        return replace(connection, api_key=key)

    def _missing_key_error(self, message: str, advice: str) -> LLMError:
        return LLMError(message, advice=advice, failure="authentication", provider=self._spec.name)
