"""The secrets of a flow file: looked up when they are sent, and taken out of everything that comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, cast

import anyio
from anyio import to_thread

from loom_core import keys
from loom_core.errors import NetError
from loom_core.flow.config.models_values import reference_in

if TYPE_CHECKING:
    from pydantic import SecretStr

    from loom_core.tools.interface import JsonValue

__all__ = ["HIDDEN", "Secrets", "hidden"]

HIDDEN = "[secret]"
"""What stands in the place of a secret."""


class Secrets:
    """Finds what `env:NAME` and `keyring:NAME` stand for, once, and hides it wherever it comes up again.

    Args:
        resolve: finds the secret of a reference; may block.
    """

    def __init__(self, resolve: Callable[[str], SecretStr] = keys.resolve) -> None:
        self._resolve = resolve
        self._known: dict[str, SecretStr] = {}
        self._finding = anyio.Lock()

    def __repr__(self) -> str:
        return f"<Secrets: {len(self._known)}>"

    async def look_up(self, texts: Iterable[str]) -> None:
        """Find the secrets of all references in texts of headers and query parameters.

        Raises:
            ConfigError: there is nothing where one points to.
        """
        for reference in filter(None, map(reference_in, texts)):
            if reference in self._known:
                continue
            async with self._finding:  # a keyring may take a second, or ask the user: once is enough
                if reference not in self._known:
                    self._known[reference] = await to_thread.run_sync(self._resolve, reference)

    def revealed(self, text: str) -> str:
        """A text with the secret in the place of a reference, which has been looked up."""
        reference = reference_in(text)
        if not reference:
            return text
        return text.removesuffix(reference) + self._known[reference].get_secret_value()

    def redacted(self, text: str) -> str:
        """A text without any secret that has been looked up."""
        return keys.redacted(text, self._known.values()) if self._known else text

    def redacted_json(self, value: JsonValue) -> JsonValue:
        """JSON without them, in keys and values."""
        return _without(value, self.redacted) if self._known else value

    def redacted_error(self, error: NetError) -> NetError:
        """The same error without them, and without the one that caused it."""
        return NetError(self.redacted(error.message), advice=error.advice, failure=error.failure)


def hidden(text: str) -> str:
    """A text with `[secret]` in the place of a reference."""
    reference = reference_in(text)
    return text.removesuffix(reference) + HIDDEN if reference else text


def _without(value: JsonValue, redacted: Callable[[str], str]) -> JsonValue:
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, JsonValue]", value).items()
        return {redacted(name): _without(each, redacted) for name, each in members}
    if isinstance(value, list):
        return [_without(each, redacted) for each in value]
    return value
