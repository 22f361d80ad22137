"""Fallback chain: try the next model if one fails."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeAlias, Unpack

from loom_core.errors import ConfigError, InvalidInputError, LLMError
from loom_core.llm.interface import ChatOptions, LLMProvider, LLMResponse, StreamChunk
from loom_core.llm.message_reading import as_messages

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from loom_core.llm.interface import Usage
    from loom_core.llm.messages import MessageLike

__all__ = ["FallbackProvider"]

_log = logging.getLogger(__name__)

_Failure: TypeAlias = LLMError | InvalidInputError


class FallbackProvider(LLMProvider):
    """Chain of models: if one fails for good, the next one gets the request.

    Each model retries by itself before it fails. Then the next gets the request, whatever the failure:
    another vendor has another key, other limits, a larger context window, or takes images. Two exceptions:
    a refusal (`refused`) is a response, and does not go to other models until one agrees; and after chunks of
    a stream were emitted, another model's would not continue them (`interrupted`).

    If a request names a `model`, that is the first provider's; the others use their own.

    A response names its provider and model. If the conversation continues with another model, each provider
    leaves out what only the vendor of an earlier response understands.
    """

    def __init__(self, providers: Sequence[LLMProvider]) -> None:
        """Set the models.

        Args:
            providers: the models, the preferred one first.

        Raises:
            ConfigError: there is none.
        """
        if not providers:
            raise ConfigError("A chain of models has no model.", advice="Name at least one.")
        self._providers = tuple(providers)

    @property
    def name(self) -> str:
        """`fallback`."""
        return "fallback"

    @property
    def model(self) -> str:
        """The preferred model."""
        return self._providers[0].model

    @property
    def providers(self) -> tuple[LLMProvider, ...]:
        """The models, the preferred one first."""
        return self._providers

    @property
    def takes_images(self) -> bool:
        """Whether one of the models takes images."""
        return any(each.takes_images for each in self._providers)

    def cost(self, usage: Usage) -> float | None:
        """Return the cost of a response of the preferred model in US dollars, or None if it is unknown."""
        return self._providers[0].cost(usage)

    def window(self) -> int | None:
        """Return the smallest known context window: any of the models may get the conversation."""
        return min((window for each in self._providers if (window := each.window())), default=None)

    def problem(self) -> str:
        """Return the preferred model's problem if no model is usable; see `LLMProvider.problem`."""
        problems = [provider.problem() for provider in self._providers]
        return problems[0] if all(problems) else ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self._providers)!r})"

    async def chat(self, messages: Sequence[MessageLike], **options: Unpack[ChatOptions]) -> LLMResponse:
        """Answer a conversation; see `LLMProvider.chat`.

        Raises:
            LLMError: all models failed; the message has the reason of each.
            InvalidInputError: no model accepts the request.
        """
        conversation = as_messages(messages)
        failed: list[tuple[LLMProvider, _Failure]] = []
        for provider in self._providers:
            try:
                return await provider.chat(conversation, **options)
            except (LLMError, InvalidInputError) as error:
                self._note(provider, error, failed)
                options.pop("model", None)
        raise _all_failed(failed)

    async def chat_stream(
        self, messages: Sequence[MessageLike], **options: Unpack[ChatOptions]
    ) -> AsyncGenerator[StreamChunk]:
        """Answer a conversation piece by piece; see `LLMProvider.chat_stream`.

        Raises:
            LLMError: as for `chat`; with failure `interrupted` if chunks were emitted before.
            InvalidInputError: as for `chat`.
        """
        conversation = as_messages(messages)
        failed: list[tuple[LLMProvider, _Failure]] = []
        for provider in self._providers:
            async with aclosing(provider.chat_stream(conversation, **options)) as stream:
                try:
                    first = await anext(stream, None)
                except (LLMError, InvalidInputError) as error:
                    self._note(provider, error, failed)
                    options.pop("model", None)
                    continue
                if first is not None:
                    yield first
                async for chunk in stream:
                    yield chunk
                return
        raise _all_failed(failed)

    async def aclose(self) -> None:
        """Close the connections of all its models."""
        for provider in self._providers:
            await provider.aclose()

    def _note(
        self, provider: LLMProvider, error: _Failure, failed: list[tuple[LLMProvider, _Failure]]
    ) -> None:
        """Record a failure, or raise it if no other model may get the request."""
        why = error.failure if isinstance(error, LLMError) else "invalid_request"
        if why in {"refused", "interrupted"}:
            raise error
        failed.append((provider, error))
        if len(failed) < len(self._providers):
            following = self._providers[len(failed)]
            _log.warning(
                "%s failed (%s); %s is asked instead", _display_name(provider), why, _display_name(following)
            )


def _display_name(provider: LLMProvider) -> str:
    return f"{provider.name} {provider.model}".rstrip()


def _all_failed(failed: Sequence[tuple[LLMProvider, _Failure]]) -> _Failure:
    """Combine the errors: with a transient failure, if there is one, else the first model's."""
    errors = [error for _, error in failed if isinstance(error, LLMError)]
    if len(failed) == 1 or not errors:
        return failed[0][1]
    told = next((error for error in errors if error.is_transient), errors[0])
    waits = [error.retry_after for error in errors if error.retry_after is not None]
    return LLMError(
        "No model answers. " + " ".join(f"{_display_name(provider)}: {error}" for provider, error in failed),
        failure=told.failure,
        provider=told.provider,
        status=told.status,
        retry_after=min(waits, default=None),
    )
