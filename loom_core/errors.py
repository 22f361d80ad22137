"""Exceptions of Loom: each has a message that says what happened, and advice on what to do next."""

from __future__ import annotations

from typing import Literal, Self, cast

__all__ = [
    "ConfigError",
    "DocumentError",
    "EmbeddingError",
    "IndexDamagedError",
    "InvalidInputError",
    "LLMError",
    "LoginError",
    "LoomError",
    "ModelError",
    "ModelFailure",
    "NetError",
    "NetFailure",
    "NotFoundError",
    "PeerError",
    "SourceError",
    "SourceStartingError",
    "StoreBusyError",
    "StoreError",
    "StoreUnavailableError",
    "UnreadableTextError",
    "capitalise",
    "first_line",
    "unwrap_group",
]


class LoomError(Exception):
    """Base of every error that Loom raises on purpose.

    Attributes:
        message: what happened, in one sentence.
        advice: what the reader can do about it, in one sentence; may be empty.
    """

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message} {self.advice}".rstrip()


class ConfigError(LoomError):
    """A setting or a configuration file is wrong."""


class UnreadableTextError(ConfigError):
    """A text violates its format.

    Attributes:
        reason: the fault.
        line: where, counted from 1.
        column: where in that line, counted from 1.
    """

    def __init__(self, reason: str, *, line: int, column: int) -> None:
        super().__init__(f"{line}:{column}: {reason}")
        self.reason = reason
        self.line = line
        self.column = column

    @classmethod
    def at(cls, text: str, position: int, reason: str) -> Self:
        """Build the error for a position of a text."""
        start = text.rfind("\n", 0, position) + 1
        return cls(reason, line=text.count("\n", 0, position) + 1, column=position - start + 1)


class InvalidInputError(LoomError):
    """The caller's arguments cannot be used as they are."""


class NotFoundError(LoomError):
    """An id or a name does not exist."""


class DocumentError(LoomError):
    """One document cannot be read: broken, encrypted, empty, binary or too large.

    It never stops the other documents of a job: it becomes one line of the job's report.
    """


ModelFailure = Literal[
    "authentication",  # the key is missing, wrong, or may not do this
    "not_found",  # there is no such model or address
    "invalid_request",  # the vendor rejects the request
    "too_long",  # the conversation does not fit the model
    "quota",  # the account has no credit left
    "rate_limit",  # too many requests in a short time
    "overloaded",  # the vendor is at capacity
    "server",  # the vendor failed
    "timeout",
    "connection",
    "unreadable",  # the response cannot be parsed
    "interrupted",  # it broke off after its beginning was passed on, or we closed the connection
    "refused",  # the model or a filter refuses to answer
    "unavailable",  # the circuit breaker is open after repeated failures
    "other",
]
"""Why a model gave no answer."""

_PASSING: frozenset[ModelFailure] = frozenset(
    {"rate_limit", "overloaded", "server", "timeout", "connection", "unreadable"}
)


class ModelError(LoomError):
    """A model cannot be reached or loaded, refuses, or sends a response that cannot be read.

    Attributes:
        failure: why.
        provider: which provider it was, or empty.
        status: the HTTP status, or None where there was none.
        retry_after: seconds that the vendor asks to wait, or None if it does not ask.
    """

    def __init__(
        self,
        message: str,
        *,
        advice: str = "",
        failure: ModelFailure = "other",
        provider: str = "",
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, advice=advice)
        self.failure: ModelFailure = failure
        self.provider = provider
        self.status = status
        self.retry_after = retry_after

    @property
    def is_transient(self) -> bool:
        """Whether a retry of the same request may succeed."""
        return self.failure in _PASSING

    def reword(self, message: str, *, advice: str | None = None, failure: ModelFailure | None = None) -> Self:
        """Return the error with another message; advice and failure stay unless they are given."""
        return type(self)(
            message,
            advice=self.advice if advice is None else advice,
            failure=failure or self.failure,
            provider=self.provider,
            status=self.status,
            retry_after=self.retry_after,
        )


class LLMError(ModelError):
    """A language model cannot be reached, refuses, or sends a response that cannot be read."""


class EmbeddingError(ModelError):
    """An embedding model cannot be loaded or does not answer."""


NetFailure = Literal[
    "refused",  # the address, or that of a redirect, is not allowed or not valid
    "connection",  # no host was reached; the request has not been executed
    "interrupted",  # the connection broke; whether what was asked has been done is not known
    "timeout",  # there was no answer in time; whether what was asked has been done is not known
    "unavailable",  # the circuit breaker is open after repeated failures
    "unusable",  # the response cannot be used: it is too large, or not of the declared kind
    "other",
]
"""Why a web address gave no answer."""


class NetError(LoomError):
    """A request to a web address is not allowed, or gets no response or an unusable one.

    Attributes:
        failure: why.
    """

    def __init__(self, message: str, *, advice: str = "", failure: NetFailure = "other") -> None:
        super().__init__(message, advice=advice)
        self.failure: NetFailure = failure


class LoginError(LoomError):
    """An MCP server requires a token, but the user has not logged in, or the login has failed."""


class SourceError(LoomError):
    """A source of knowledge gives no answer, or one that cannot be used."""


class SourceStartingError(SourceError):
    """A source of knowledge cannot be asked yet: it is still starting."""


ServerFailure = Literal[
    "start",  # it cannot be started, ended at once, or did not answer when it was opened
    "connection",  # it cannot be reached, or went away; what was asked has not been done
    "interrupted",  # it went away meanwhile; whether what was asked has been done is not known
    "timeout",  # it did not answer in time; whether what was asked has been done is not known
    "authentication",  # it wants a token, or another one
    "refused",  # it answers with an error
    "busy",  # it has no room now
    "too_large",  # the request is too large for it, or its answer for us
    "unreadable",  # what it answers breaks the protocol
    "loop",  # the server would start itself again
    "closed",  # we have closed the connection
]
"""Why an MCP server gave no answer."""


class ServerError(LoomError):
    """An MCP server cannot be reached, refuses, or sends a response that cannot be used.

    Attributes:
        server: its id in the configuration.
        failure: why.
        code: code of the JSON-RPC error that it answered with, or None.
        status: the HTTP status, or None where there was none.
        retry_after: seconds that the server asks to wait, or None if it does not ask.
        not_run: whether it is certain that the server did not execute the request.
    """

    def __init__(
        self,
        message: str,
        *,
        server: str,
        failure: ServerFailure,
        advice: str = "",
        code: int | None = None,
        status: int | None = None,
        retry_after: float | None = None,
        not_run: bool = False,
    ) -> None:
        super().__init__(message, advice=advice)
        self.server = server
        self.failure: ServerFailure = failure
        self.code = code
        self.status = status
        self.retry_after = retry_after
        self.not_run = not_run


class StoreError(LoomError):
    """A store, such as `record.db`, cannot be opened or written: disk full, read-only, newer version."""


class StoreUnavailableError(StoreError):
    """A server that holds an index cannot be asked now: away, too slow, full, or it refuses the credentials.

    The index is not damaged, and catches up once the server answers again.
    """


class PeerError(LoomError):
    """Another process of Loom does not respond: it has ended, hangs, or has another identity.

    Questions are answered without it.
    """


class StoreBusyError(LoomError):
    """Another process holds what is needed and did not release it in time."""


class IndexDamagedError(LoomError):
    """A derived index cannot be opened, or is inconsistent; it is rebuilt from the store."""


def capitalise(message: str) -> str:
    """Capitalize the first letter of a message, which may be a name in lower case."""
    return message[:1].upper() + message[1:]


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message without its full stop, or the error's type without one."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(" .")[:300] if lines else type(error).__name__


def unwrap_group(error: Exception) -> Exception:
    """Unwrap a single error from the exception groups of task groups."""
    if not isinstance(error, ExceptionGroup):
        return error
    group = cast("ExceptionGroup[Exception]", error)
    return unwrap_group(group.exceptions[0]) if len(group.exceptions) == 1 else group
