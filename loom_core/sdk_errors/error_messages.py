"""Error messages: what people can do, and whether programs should retry."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from loom_core.errors import LLMError, ModelError, capitalise
from loom_core.sdk_errors.failures import TOOLS_REFUSED, failure_of
from loom_core.sdk_errors.response_body import body_of, retry_after_of, status_of, words_of

if TYPE_CHECKING:
    from loom_core.errors import ModelFailure

__all__ = ["NoAnswerError", "model_error", "quote_words"]

_E = TypeVar("_E", bound=ModelError)

_SAYS: Mapping[ModelFailure, str] = {
    "authentication": "{title} does not let this key use {model}",
    "not_found": "{title} has no model {model} at this address",
    "invalid_request": "{title} refused the request to {model}",
    "too_long": "The conversation is too long for {model} at {title}",
    "quota": "The account at {title} has no credit or quota left for {model}",
    "rate_limit": "{title} reports too many requests for {model}",
    "overloaded": "{title} is overloaded and cannot run {model} now",
    "server": "{title} failed while it ran {model}",
    "timeout": "{title} timed out while it ran {model}",
    "connection": "The connection to {title} failed during a request to {model}",
    "unreadable": "{title} sent an unreadable response of {model}",
    "refused": "{title} refuses to let {model} answer this",
}
_ADVICE: Mapping[ModelFailure, str] = {
    "authentication": "Check the key in {key}, and that it may use this model.",
    "not_found": "Check the name of the model, and the base URL.",
    "invalid_request": "A retry would fail again: change the request, or use another model.",
    "too_long": "Shorten the conversation, or use a model with a larger context window.",
    "quota": "Top the account up, raise its limit, or use another provider.",
    "rate_limit": "Try again {later}, or ask for less at once.",
    "overloaded": "Try again {later}, or use another model.",
    "server": "Try again {later}, or use another model.",
    "timeout": "Try again, or allow it more time.",
    "connection": "Try again, and check the network and the base URL.",
    "unreadable": "Try again; if the error persists, check the base URL.",
    "refused": "Ask in other words, or use another model.",
}

_TOOLS_REFUSED_ADVICE = "Set `supports_tools` to false in the model's `spec`: it then gets tools by prompt."


class NoAnswerError(Exception):
    """A response has an error instead of an answer.

    Attributes:
        body: the response body.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__("The answer tells of an error.")
        self.body = body


def model_error(
    error: Exception,
    *,
    kind: type[_E] = LLMError,
    title: str,
    provider: str,
    model: str,
    key_variable: str = "",
) -> _E:
    """Convert an SDK's error so that people know what to do, and programs whether to try again.

    Raise it `from None`: the vendor's own message may quote the key, and would be logged with it.

    Args:
        error: an exception of an SDK, `httpx2`, or a response reader.
        kind: `LLMError` or `EmbeddingError`.
        title: the vendor's name for people.
        provider: the vendor's name in configurations.
        model: the model that was asked.
        key_variable: the environment variable that holds the key, for the advice.

    Returns:
        An error with `failure`, `status` and `retry_after`. Its message quotes the vendor in at most 300
        characters, on one line, without anything that looks like a key.
    """
    body = body_of(error)
    words = words_of(error, body)
    status = status_of(error, body)
    failure = failure_of(error, status=status, body=body, words=words)
    retry_after = retry_after_of(error, body)
    says = _SAYS.get(failure, "{title} gave no answer of {model}").format(
        title=title, model=model or "the model"
    )
    advice = _TOOLS_REFUSED_ADVICE if TOOLS_REFUSED.search(words) else _ADVICE.get(failure, "")
    heard = quote_words(words, error)
    return kind(
        capitalise(says)
        + (f" (HTTP {status})" if status else "")
        + (f": {_as_sentence(heard)}" if heard else "."),
        advice=advice.format(
            key=key_variable or "the configuration",
            later="in a moment" if retry_after is None else f"in {retry_after:.0f} s",
        ),
        failure=failure,
        provider=provider,
        status=status,
        retry_after=retry_after,
    )


def _as_sentence(words: str) -> str:
    return words if words.endswith((*".!?…", *"。！？")) else f"{words}."


_LONGEST_WORDS = 300
_SHORTEST_KEY = 8

_SECRETS = re.compile(
    r"\bBearer\s+[^\s\"',;]+"
    r"|\b(?:sk|pk|rk|ak|gsk|xai|nvapi|hf)[-_][^\s\"',;)]{4,}"
    r"|\bAIza[\w-]{10,}"
    r"|(?<=[:=])\s*[\"']?(?=[\w./+-]*\d)[\w./+-]{20,}"
    r"|\b(?=[A-Za-z_-]*\d)(?=[\d_-]*[A-Za-z])[\w-]{32,}(?:\.[\w-]+)*",
    re.IGNORECASE | re.ASCII,
)
"""Pattern of a key: with a vendor's prefix, after `Bearer`, or long and of letters and digits."""


def quote_words(words: str, error: Exception) -> str:
    """Return a message on one line, truncated, without the sent key and anything that looks like a key."""
    for key in _request_keys(error):
        words = words.replace(key, "…")
    line = " ".join(_SECRETS.sub("…", words).split())
    line = "".join(letter for letter in line if letter.isprintable())
    return line if len(line) <= _LONGEST_WORDS else f"{line[: _LONGEST_WORDS - 1]}…"


def _request_keys(error: Exception) -> Iterator[str]:
    headers = cast("Mapping[str, Any]", getattr(_request(error), "headers", {}))
    for name in ("authorization", "x-api-key", "api-key", "x-goog-api-key"):
        key = str(headers.get(name, "")).removeprefix("Bearer ").strip()
        if len(key) >= _SHORTEST_KEY:
            yield key


def _request(error: Exception) -> object:
    try:
        return getattr(error, "request", None)
    except RuntimeError:  # httpx2 raises it where an error has no request
        return None
