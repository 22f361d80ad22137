"""Several models, of which the next one is asked where one cannot answer."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Self, TypeAlias, Unpack

from loom_core.errors import ConfigError, InvalidInputError, LLMError
from loom_core.llm.interface import ChatOptions, LLMProvider, LLMResponse, StreamChunk
from loom_core.llm.message_reading import as_messages

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from types import TracebackType

    from loom_core.llm.interface import Usage
    from loom_core.llm.messages import MessageLike

__all__ = ["FallbackProvider"]

_log = logging.getLogger(__name__)

_Failure: TypeAlias = LLMError | InvalidInputError


class FallbackProvider(LLMProvider):
    """Asks the first of its models, and the next one where one fails for good.

    Each model tries again by itself before it fails. Then the next is asked, whatever the failure: another
    vendor has another key, other models, other limits, more room for a long conversation, eyes for an image.
    There are two exceptions. A refusal (`refused`) is an answer of the model's maker, and is not taken to
    others until one agrees. And where pieces of a stream were handed on, another model's would not fit behind
    them (`interrupted`).

    Where a request names a `model`, it is the first of these that asks it; the others ask their own.

    An answer says which provider and model gave it. Where the conversation goes on with another model, each
    provider leaves out what means something to the vendor of an earlier answer only.
    """

    def __init__(self, providers: Sequence[LLMProvider]) -> None:
        """Say whom to ask.

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

    def cost(self, usage: Usage) -> float | None:
        """US dollars for an answer of the preferred model, or None where the price is not known."""
        return self._providers[0].cost(usage)

    def window(self) -> int | None:
        """The smallest of those that are known: any of the models may have to read the conversation."""
        return min((window for each in self._providers if (window := each.window())), default=None)

    def problem(self) -> str:
        """Of the preferred model, where none can be asked; see `LLMProvider.problem`."""
        problems = [provider.problem() for provider in self._providers]
        return problems[0] if all(problems) else ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self._providers)!r})"

    async def chat(self, messages: Sequence[MessageLike], **options: Unpack[ChatOptions]) -> LLMResponse:
        """Answer a conversation; see `LLMProvider.chat`.

        Raises:
            LLMError: no model answers; the message has the reason of each.
            InvalidInputError: no model takes the request.
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
            LLMError: as for `chat`; of failure `interrupted` where pieces were handed on before.
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _note(
        self, provider: LLMProvider, error: _Failure, failed: list[tuple[LLMProvider, _Failure]]
    ) -> None:
        """Take a failure down, or raise it where no other model is to be asked."""
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
    """One error for all: of the failure that may pass, if there is one, else of the first that was asked."""
    errors = [error for _, error in failed if isinstance(error, LLMError)]
    if len(failed) == 1 or not errors:
        return failed[0][1]
    told = next((error for error in errors if error.passing), errors[0])
    waits = [error.retry_after for error in errors if error.retry_after is not None]
    return LLMError(
        "No model answers. " + " ".join(f"{_display_name(provider)}: {error}" for provider, error in failed),
        failure=told.failure,
        provider=told.provider,
        status=told.status,
        retry_after=min(waits, default=None),
    )
