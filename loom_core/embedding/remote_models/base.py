"""Base of remote embedding models: batching, windows, retries, circuit breaker, validation."""

from __future__ import annotations

import json
import logging
import time
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar

from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
from loom_core.embedding.numpy_import import import_numpy
from loom_core.embedding.remote_models.settings import RemoteSettings
from loom_core.errors import ConfigError, EmbeddingError, capitalise, unwrap_group
from loom_core.keys import find_key
from loom_core.net.retry import RetryPolicy
from loom_core.sdk_errors import model_error
from loom_core.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from typing import Unpack

    import numpy as np
    from numpy.typing import NDArray
    from pydantic import SecretStr, ValidationError

    from loom_core.embedding.remote_models.settings import RemoteOptions
    from loom_core.embedding.remote_models.vendors import EmbeddingVendor
    from loom_core.errors import ModelFailure

__all__ = ["Piece", "RemoteEmbedder", "RequestRetrier", "batches", "halves", "windows"]

_log = logging.getLogger(__name__)
_C = TypeVar("_C")

_LEAST_TOKENS = 32
"""Minimum tokens of text next to a prefix; a server with a smaller limit is unsuitable for passages."""


class RemoteEmbedder(EmbeddingProvider, Generic[_C]):
    """Embedding model of another process, over HTTP.

    Every row is normalised to length 1, whatever the server sends. An empty text is a row of zeros, and is
    never sent. A text that is too long, by estimate or by the server's error, is split into windows, and its
    vector is the mean of theirs, weighted by length. Rows are in the order of the texts.

    Transient failures are retried, for queries only once. If the server is unreachable, or times out, the
    circuit breaker opens for a while, and requests fail at once: retrieval then answers queries by the
    lexical and the graph channel.

    One instance serves any number of event loops, with separate connections in each; `aclose` closes those of
    the running one.
    """

    def __init__(
        self, vendor: EmbeddingVendor, *, model: str, base_url: str, **options: Unpack[RemoteOptions]
    ) -> None:
        """Store the settings; nothing is sent yet. See `RemoteSettings.of`."""
        self._settings = RemoteSettings.of(vendor, model=model, base_url=base_url, **options)
        self._vendor, self._model = vendor, self._settings.model
        self._dimension = self._settings.dimension
        self._retrier = RequestRetrier(self._settings)
        self._clients = RunVar[_C | None](f"client of {self._model}", None)

    @property
    def id(self) -> str:
        """Host, model and dimension; and a hash of prefixes and the like, if there are any.

        Raises:
            ConfigError: the dimension is not known yet, see `prepare`.
        """
        changes = {**self._settings.prefixes, **self._request_config()}
        spelled = json.dumps({name: change for name, change in changes.items() if change}, sort_keys=True)
        digest = "-" + sha256(spelled.encode()).hexdigest()[:8] if any(changes.values()) else ""
        return f"{self._settings.host}/{self._model}/{self.dimension}{digest}"

    @property
    def config(self) -> dict[str, str]:
        """Configuration that recreates this embedder, with all known settings; without a key.

        Raises:
            ConfigError: the dimension is not known yet, see `prepare`.
        """
        config = {
            "provider": self._vendor.name,
            "model": self._model,
            "base_url": self._settings.base_url,
            "api_key_env": self._settings.api_key_env,
            "dimension": str(self.dimension),
            "query_prefix": self._settings.prefixes["query"],
            "passage_prefix": self._settings.prefixes["passage"],
            "max_tokens": str(self._settings.max_tokens),
            **{name: str(limit) for name, limit in self._settings.limits.items()},
            **self._request_config(),
        }
        return {name: value for name, value in config.items() if value or name.endswith("_prefix")}

    @property
    def dimension(self) -> int:
        """Length of every vector.

        Raises:
            ConfigError: it is not known yet, see `prepare`.
        """
        if self._dimension is None:
            raise ConfigError(
                f"The dimension of {self._model!r} is not known before its first answer.",
                advice="Set dimension, or call prepare() of the embedder first.",
            )
        return self._dimension

    @property
    def languages(self) -> frozenset[str] | None:
        """ISO 639-1 codes the model covers, or None for about every language, or if unknown."""
        return self._settings.known.languages

    @property
    def cross_lingual(self) -> bool:
        """Whether texts of equal meaning in different languages are near each other."""
        return self._settings.known.cross_lingual

    async def prepare(self) -> None:
        """See `EmbeddingProvider.prepare`: request the vector dimension from the server, unless it is known.

        The timeout allows for loading the model (`timeout`), and is longer than that of a query.
        """
        if self._dimension is not None:
            return
        await import_numpy()
        await self._retrier.log_while_waiting(
            self._request_with_retries(["dimension"], "query", self._retrier.first())
        )

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> NDArray[np.float32]:
        """Embed texts, see `EmbeddingProvider.embed`."""
        await import_numpy()
        import numpy as np

        room = max(_LEAST_TOKENS, self._settings.max_tokens - estimate_tokens(self._settings.prefixes[kind]))
        pieces = [
            piece
            for row, text in enumerate(texts)
            for piece in windows(row, _without_surrogates(text), max_tokens=room)
            if piece.text.strip()
        ]
        answers = await self._answers(pieces, kind)
        await self.prepare()  # if all texts are empty
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for answered, rows in answers:
            for piece, row in zip(answered, rows, strict=True):
                vectors[piece.row] += max(1, piece.tokens) * row
        return unit_rows(vectors, count=len(texts))

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the next `embed` opens new ones."""
        client = self._clients.get()
        self._clients.set(None)
        if client is not None:
            await self._close_quietly(client)

    @abstractmethod
    async def _request(
        self, client: _C, texts: list[str], kind: EmbeddingKind
    ) -> Sequence[Sequence[float] | NDArray[np.float32]]:
        """Send one request, and return a raw vector for each text, in order.

        Raises:
            EmbeddingError: there is no readable response.
        """

    @abstractmethod
    def _make_client(self) -> _C:
        """Create the client for requests. Called in a worker thread: it may import and read the key.

        Raises:
            EmbeddingError: a package or the key is missing.
        """

    @abstractmethod
    async def _close_client(self, client: _C) -> None:
        """Close a client of `_make_client`."""

    def _request_config(self) -> dict[str, str]:
        """Return further settings of this kind of server that change the vectors."""
        return {}

    def _dimension_to_request(self) -> int | None:
        """Return the dimension to request, if any: a length that is not the model's own."""
        known, wanted = self._settings.known, self._settings.dimension
        return wanted if known.shortens and wanted != known.dimension else None

    def _key(self) -> SecretStr | None:
        """Return the key, or None if none is needed. Blocks if it reads a keyring.

        Raises:
            EmbeddingError: a required key is missing, or it is invalid.
        """
        variable, key = self._settings.api_key_env, self._settings.api_key
        try:
            if key is None and variable:
                # An optional key is looked up in the keyring only if the user names it.
                named = variable != self._vendor.key_variable
                key = find_key(variable, keyring=self._vendor.needs_key or named)
        except ConfigError as error:
            raise self._error(error.message, advice=error.advice, failure="authentication") from None
        if key is None and self._vendor.needs_key:
            raise self._error(
                f"There is no key for {self._vendor.title}.",
                advice=f"Put it into the environment variable {variable or 'that api_key_env names'}.",
                failure="authentication",
            )
        return key

    def _error(self, message: str, *, advice: str, failure: ModelFailure) -> EmbeddingError:
        return EmbeddingError(message, advice=advice, failure=failure, provider=self._vendor.name)

    def _unreadable(self, why: str) -> EmbeddingError:
        return self._error(
            f"{capitalise(self._vendor.title)} sent an unreadable response of {self._model}: {why}.",
            advice="Check that base_url is that of an embedding interface, and what the server says.",
            failure="unreadable",
        )

    def _invalid(self, error: ValidationError) -> EmbeddingError:
        """Return the error of an invalid response, without quoting it."""
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        return self._unreadable(f"{where}: {first['msg']}")

    def _convert_error(self, error: Exception) -> EmbeddingError:
        """Convert an error of the SDK or the HTTP client, see `model_error`."""
        return model_error(
            error,
            kind=EmbeddingError,
            title=self._vendor.title,
            provider=self._vendor.name,
            model=self._model,
            key_variable=self._settings.api_key_env,
        )

    async def _answers(
        self, pieces: Sequence[Piece], kind: EmbeddingKind
    ) -> list[tuple[Sequence[Piece], NDArray[np.float32]]]:
        """Return unit vectors of all pieces, in any order."""
        todo = batches(
            pieces, max_texts=self._settings.max_texts, max_tokens=self._settings.max_request_tokens
        )
        answers: list[tuple[Sequence[Piece], NDArray[np.float32]]] = []
        failures: list[EmbeddingError] = []

        async def work() -> None:
            for batch in todo:
                try:
                    await self._answer(batch, kind, answers)
                except EmbeddingError as error:
                    failures.append(error)
                    workers.cancel_scope.cancel()

        async with anyio.create_task_group() as workers:
            for _ in range(min(self._settings.concurrency, len(pieces))):
                workers.start_soon(work)
        if failures:
            raise failures[0]
        return answers

    async def _answer(
        self,
        batch: Sequence[Piece],
        kind: EmbeddingKind,
        answers: list[tuple[Sequence[Piece], NDArray[np.float32]]],
    ) -> None:
        """Embed one batch; split it if the server says that it is too long."""
        try:
            texts = [piece.text for piece in batch]
            answers.append((batch, await self._request_with_retries(texts, kind, self._retrier.policy(kind))))
        except EmbeddingError as error:
            if error.failure != "too_long" or (len(batch) == 1 and batch[0].tokens <= _LEAST_TOKENS):
                raise
            middle = len(batch) // 2
            parts = [batch[:middle], batch[middle:]]
            if not middle:
                parts = [[half] for half in halves(batch[0]) if half.text.strip()]
            for part in parts:
                await self._answer(part, kind, answers)

    async def _request_with_retries(
        self, texts: list[str], kind: EmbeddingKind, policy: RetryPolicy
    ) -> NDArray[np.float32]:
        self._retrier.check()
        prefix = self._settings.prefixes[kind]
        client = await self._client()  # imports and reads a keyring: no failure of the server
        return await self._retrier.run(
            partial(self._once, client, [prefix + text for text in texts], kind), policy=policy
        )

    async def _once(self, client: _C, texts: list[str], kind: EmbeddingKind) -> NDArray[np.float32]:
        """Return unit vectors from one request, after validation."""
        rows = await self._request(client, texts, kind)
        try:
            vectors = unit_rows(rows, count=len(texts))
        except ValueError as error:
            raise self._unreadable(str(error)) from None
        self._check_dimension(vectors.shape[1])
        return vectors

    def _check_dimension(self, found: int) -> None:
        if self._dimension is None:
            _log.info("The vectors of %s have dimension %d.", self._model, found)
            self._dimension = found
        if found != self._dimension:
            raise self._error(
                f"{capitalise(self._vendor.title)} sent vectors of dimension {found:,} for"
                f" {self._model}, not {self._dimension:,}.",
                advice="Restore the earlier model of this name, or rebuild all vectors.",
                failure="invalid_request",
            )

    async def _client(self) -> _C:
        """Return the client of the running event loop: loops cannot share connections."""
        client = self._clients.get()
        if client is not None:
            return client
        made = await to_thread.run_sync(self._make_client)
        client = self._clients.get()  # another request may have been faster
        if client is None:
            self._clients.set(made)
            return made
        await self._close_quietly(made)
        return client

    async def _close_quietly(self, client: _C) -> None:
        if self._settings.http_client is None:
            await self._close_client(client)


def _without_surrogates(text: str) -> str:
    """Replace lone surrogates, as they would fail the whole request."""
    return text.encode("utf-8", "replace").decode("utf-8")


def unit_rows(
    rows: Sequence[Sequence[float] | NDArray[np.float32]] | NDArray[np.float32], *, count: int
) -> NDArray[np.float32]:
    """Validate vectors, and normalise them to length 1; zero vectors stay.

    Args:
        rows: vectors.
        count: their expected number.

    Raises:
        ValueError: they are invalid; the message says why, as part of a sentence.
    """
    import numpy as np

    if len(rows) != count:
        raise ValueError(f"{len(rows):,} vectors for {count:,} texts")
    try:
        with np.errstate(over="ignore"):  # an overflow becomes infinity, which is checked
            vectors = np.array(rows, dtype=np.float32)
    except (ValueError, OverflowError):
        raise ValueError("vectors of different lengths") from None
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise ValueError("vectors without numbers")
    if not np.isfinite(vectors).all():
        raise ValueError("a vector holds NaN or infinity")
    # In double precision, so that squares of large numbers do not overflow.
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


_SEARCHED = 10
"""The last tenth of a window is searched for a word boundary."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A text or a part of one.

    Attributes:
        row: index of its text.
        text: its text.
        tokens: estimated tokens.
    """

    row: int
    text: str
    tokens: int


def windows(row: int, text: str, *, max_tokens: int) -> list[Piece]:
    """Split a text into windows of at most `max_tokens` by estimate, without overlap.

    A window ends after white space if there is some in its last tenth.

    Args:
        row: index of the text.
        text: the text.
        max_tokens: at least 1.
    """
    pieces: list[Piece] = []
    start = 0
    while start < len(text):
        end = _end_of_window(text, start, max_tokens)
        window = text[start:end]
        pieces.append(Piece(row, window, estimate_tokens(window)))
        start = end
    return pieces


def halves(piece: Piece) -> list[Piece]:
    """Split a piece in two, by characters.

    Args:
        piece: of two characters or more.
    """
    middle = len(piece.text) // 2
    parts = (piece.text[:middle], piece.text[middle:])
    return [Piece(piece.row, part, estimate_tokens(part)) for part in parts]


def batches(pieces: Sequence[Piece], *, max_texts: int, max_tokens: int) -> Iterator[Sequence[Piece]]:
    """Group pieces into batches for requests, in order.

    Args:
        pieces: the pieces. A piece that is too long by itself is a separate batch.
        max_texts: maximum number of pieces in a request.
        max_tokens: maximum number of their tokens together, by estimate.
    """
    start = tokens = 0
    for end, piece in enumerate(pieces):
        if end > start and (end - start >= max_texts or tokens + piece.tokens > max_tokens):
            yield pieces[start:end]
            start, tokens = end, 0
        tokens += piece.tokens
    if start < len(pieces):
        yield pieces[start:]


def _end_of_window(text: str, start: int, max_tokens: int) -> int:
    """Find the end of the window from `start` by binary search: a longer text never has fewer tokens."""
    shortest, longest = start + 1, min(len(text), start + 4 * max_tokens)  # no character is under 1/4 token
    if estimate_tokens(text[start:longest]) <= max_tokens:
        shortest = longest
    while shortest < longest:
        middle = (shortest + longest + 1) // 2
        if estimate_tokens(text[start:middle]) <= max_tokens:
            shortest = middle
        else:
            longest = middle - 1
    if shortest == len(text):
        return shortest
    earliest = shortest - (shortest - start) // _SEARCHED
    return next((end for end in range(shortest, earliest, -1) if text[end - 1].isspace()), shortest)


_T = TypeVar("_T")

_POLICIES: Mapping[EmbeddingKind, RetryPolicy] = {
    "query": RetryPolicy(attempts=2, base=0.2, longest_wait=2.0, deadline=10.0),
    "passage": RetryPolicy(attempts=4, base=0.5, longest_wait=60.0, deadline=60.0),
}
"""Retry policies: a user waits for a query, and other channels can answer it; passages can wait."""

_SLOW_ADVICE = (
    "The server may still be loading the model: try again in a moment, or allow it more time (timeout)."
)
_WAITING_SECONDS = 3.0
"""Seconds after which waiting for the first response is logged."""


class RequestRetrier:
    """Retries requests, with a circuit breaker for an unreachable server."""

    def __init__(self, settings: RemoteSettings) -> None:
        """Start with a closed circuit."""
        self._settings = settings
        self._title = capitalise(settings.vendor.title)
        self._rests_until = 0.0
        self._last_failure = ""

    def policy(self, kind: EmbeddingKind) -> RetryPolicy:
        """Return the retry policy of a request."""
        if self._settings.retry is not None:
            return self._settings.retry
        policy = _POLICIES[kind]
        if kind == "query":
            return policy
        return replace(policy, deadline=max(policy.deadline, 2 * self._settings.timeout))

    def first(self) -> RetryPolicy:
        """Return the retry policy of the first request, for which the server may have to load the model."""
        return self._settings.retry or replace(_POLICIES["query"], deadline=2 * self._settings.timeout)

    def check(self) -> None:
        """Check the circuit breaker.

        Raises:
            EmbeddingError: with failure `unavailable`: the circuit is open.
        """
        left = self._rests_until - time.monotonic()
        if left > 0:
            raise EmbeddingError(
                f"Circuit open for {self._title}; retrying in {left:.0f} s: {self._last_failure}",
                advice="Check that the server runs, and the network.",
                failure="unavailable",
                provider=self._settings.vendor.name,
            )

    async def run(self, attempt: Callable[[], Awaitable[_T]], *, policy: RetryPolicy) -> _T:
        """Return the result of a request, with retries; see `RetryPolicy.run`.

        Raises:
            EmbeddingError: the last attempt failed, or the deadline has passed.
        """
        vendor = self._settings.vendor
        try:
            return await policy.run(attempt, title=vendor.title, provider=vendor.name, kind=EmbeddingError)
        except EmbeddingError as error:
            if error.failure in {"connection", "timeout"}:
                self._rests_until = time.monotonic() + self._settings.rest
                self._last_failure = error.message
            if error.failure == "timeout":
                raise error.reword(error.message, advice=_SLOW_ADVICE) from None
            raise

    async def log_while_waiting(self, doing: Awaitable[object]) -> None:
        """Await the first response, and log the wait if it takes long."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._log_waiting)
                await doing
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            raise unwrap_group(group) from None

    async def _log_waiting(self) -> None:
        await anyio.sleep(_WAITING_SECONDS)
        _log.warning(
            "%s has not answered with %s yet, and may be loading it: waiting for up to %g s.",
            self._title,
            self._settings.model,
            self._settings.timeout,
        )
