"""Vectors in Qdrant: a collection of a server or of Qdrant Cloud, by its official client over REST."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from loom_core.errors import ConfigError, IndexDamagedError, first_line
from loom_core.knowledge.indexes.engines.servers import (
    INDEX_USE,
    import_client,
    split_batches,
    unavailable,
)
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import httpx
    import numpy as np
    from numpy.typing import NDArray
    from pydantic import SecretStr
    from qdrant_client import QdrantClient
    from qdrant_client.http import models

    from loom_core.errors import LoomError, StoreUnavailableError
    from loom_core.knowledge.indexes.engines.servers import ServerUse
    from loom_core.knowledge.interface import PassageVectors, VectorQuery

__all__ = ["QdrantConnection", "QdrantVectorIndex"]

_T = TypeVar("_T")

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 10.0
_WRITE_SECONDS = 60.0
_BUILD_SECONDS = 3600.0
_POINTS = 500  # in a request
_NUMBERS = 1_000_000  # in a request, up to 22 bytes each: the server takes 32 MB
_KEYS = 10_000  # in a request without vectors
_LEAST_EF = 128
_INDEXED_FROM = 10_000  # kilobytes of vectors in a segment, Qdrant's own default
_UNREADABLE = (json.JSONDecodeError, UnicodeError)  # of answers, and of names of hosts
_BROKEN = ("failed to load local shard", "inconsistent storage")
_DISK_ADVICE = "Free space on the server's disk; what it has missed is written then. Nothing is lost."


@register("vector_index", "qdrant")
class QdrantVectorIndex:
    """`VectorIndex` over one collection of Qdrant 1.10 or later, reached as `qdrant+http://host:6333`.

    A URL without a port means 6333, as for all of Qdrant's clients; it may have a path. The secret is an API
    key. Points are numbered by their keys. `language` and `document` have payload indexes before the first
    point: else the graph has no links for filters, and Qdrant Cloud refuses the filters
    (https://qdrant.tech/documentation/concepts/indexing/,
    https://qdrant.tech/documentation/cloud/configure-cluster/).
    """

    def __init__(self, url: str, *, secret: SecretStr | None, collection: str, dimension: int) -> None:
        """Take the address; nothing is connected before the first use.

        Raises:
            ConfigError: the URL is none of a Qdrant server, or the secret cannot be an API key.
        """
        self._connection = QdrantConnection(url, secret=secret, collection=collection)
        self._ask = self._connection.ask
        self._name = collection
        self._dimension = dimension
        self._batch = max(1, min(_POINTS, _NUMBERS // dimension))

    def create(self) -> None:
        """Make the collection, empty, without a graph until `build`; see `VectorIndex`."""
        self._ask(self._replace)

    def upsert(self, passages: PassageVectors) -> None:
        """Store passages; see `VectorIndex`."""
        for batch in split_batches(passages, self._batch):
            self._ask(lambda client, batch=batch: self._upsert(client, batch))

    def delete(self, keys: Collection[int]) -> None:
        """Forget keys; see `VectorIndex`."""
        for ids in _slices(keys, _KEYS):
            self._ask(lambda client, ids=ids: self._check_written(client.delete(self._name, [*ids])))

    def build(self) -> None:
        """Let Qdrant build the graph of what was loaded, and wait for it; see `VectorIndex`.

        It does so by itself once it has a threshold, and its status is green at the end
        (https://qdrant.tech/documentation/concepts/collections/#collection-status). Later passages are
        compared one by one until they are in the graph, too.

        Raises:
            StoreUnavailableError: as for the others, and if it takes longer than an hour.
            IndexDamagedError: as for the others, and if the status is red: an operation failed for good.
        """
        deadline = time.monotonic() + _BUILD_SECONDS
        pause = 0.05
        self._ask(self._let_index)
        while (info := self._ask(lambda client: client.get_collection(self._name))).status != "green":
            if info.status == "red":
                reason = f"its status is red: {info.optimizer_status}"
                raise self._connection.failed(reason)
            if time.monotonic() > deadline:
                raise self._connection.unavailable(f"its index is not built within {_BUILD_SECONDS:.0f} s")
            time.sleep(pause)
            pause = min(2 * pause, 2.0)
            if info.status == "grey":  # it does not go on by itself after a start of the server
                self._ask(self._let_index)

    def search(self, queries: Sequence[VectorQuery]) -> list[list[tuple[int, float]]]:
        """Return the nearest keys for each query, all by one request; see `VectorIndex`.

        Restricted to documents, passages are compared one by one, by way of the payload index. There the
        graph falls apart: of 600 neighbours among a tenth of 100,000 passages it finds 80 %, in the same
        time. Other queries are asked again in that way where they find less than their limit.
        """
        found: list[list[tuple[int, float]]] = [[] for _ in queries]
        places = [
            place
            for place, query in enumerate(queries)
            if query.limit > 0 and (query.documents is None or query.documents)
        ]
        for exact in (False, True):
            if places:
                requests = [
                    _request(queries[place], exact=exact or queries[place].documents is not None)
                    for place in places
                ]
                answers = self._ask(
                    lambda client, requests=requests: client.query_batch_points(self._name, requests)
                )
                for place, answer in zip(places, answers, strict=True):
                    found[place] = [(int(point.id), point.score) for point in answer.points]
                places = [
                    place
                    for place in places
                    if len(found[place]) < queries[place].limit and queries[place].documents is None
                ]
        return found

    def vectors(self, keys: Collection[int]) -> dict[int, NDArray[np.float32]]:
        """Return the stored vectors of keys; see `VectorIndex`."""
        import numpy as np

        stored: dict[int, NDArray[np.float32]] = {}
        for ids in _slices(keys, self._batch):
            records = self._ask(
                lambda client, ids=ids: client.retrieve(
                    self._name, ids, with_payload=False, with_vectors=True
                )
            )
            stored.update((int(record.id), np.asarray(record.vector, np.float32)) for record in records)
        return stored

    def keys(self) -> list[int]:
        """Return all keys; see `VectorIndex`."""
        found: list[int] = []
        offset: Any = None  # the next page's first point
        while True:
            records, offset = self._ask(
                lambda client, offset=offset: client.scroll(
                    self._name, limit=_KEYS, offset=offset, with_payload=False, with_vectors=False
                )
            )
            found += [int(record.id) for record in records]
            if offset is None:
                return found

    def count(self) -> int:
        """Return how many passages are stored; see `VectorIndex`."""
        return self._ask(lambda client: client.count(self._name, exact=True)).count

    def drop(self) -> None:
        """Delete the collection, if there is one; see `VectorIndex`."""
        self._ask(lambda client: client.delete_collection(self._name))

    def close(self) -> None:
        """Close connections; see `VectorIndex`."""
        self._connection.close()

    def _replace(self, client: QdrantClient) -> None:
        from qdrant_client.http import models

        client.delete_collection(self._name)
        client.create_collection(
            self._name,
            vectors_config=models.VectorParams(size=self._dimension, distance=models.Distance.COSINE),
            hnsw_config=models.HnswConfigDiff(m=16, ef_construct=100),
            optimizers_config=models.OptimizersConfigDiff(indexing_threshold=0),  # none during a bulk load
        )
        language, document = models.PayloadSchemaType.KEYWORD, models.PayloadSchemaType.INTEGER
        self._check_written(client.create_payload_index(self._name, "language", field_schema=language))
        self._check_written(client.create_payload_index(self._name, "document", field_schema=document))

    def _upsert(self, client: QdrantClient, passages: PassageVectors) -> None:
        from qdrant_client.http import models

        fields = zip(passages.languages, passages.documents, strict=True)
        points = models.Batch(
            ids=list(passages.keys),
            vectors=passages.vectors.tolist(),
            payloads=[{"language": language, "document": document} for language, document in fields],
        )
        self._check_written(client.upsert(self._name, points, wait=True))

    def _let_index(self, client: QdrantClient) -> None:
        from qdrant_client.http import models

        indexed = models.OptimizersConfigDiff(indexing_threshold=_INDEXED_FROM)
        client.update_collection(self._name, optimizers_config=indexed)

    def _check_written(self, result: models.UpdateResult) -> None:
        if result.status != "completed":
            raise self._connection.unavailable(f"a write is {result.status}, not completed")


class QdrantConnection:
    """Requests about one collection of a server, with time limits; errors are translated.

    Args:
        url: as for `QdrantVectorIndex`.
        secret: the API key.
        collection: its name.
        use: what Loom uses it for.

    Raises:
        ConfigError: the URL is none of a Qdrant server, or the secret cannot be an API key.
    """

    def __init__(
        self, url: str, *, secret: SecretStr | None, collection: str, use: ServerUse = INDEX_USE
    ) -> None:
        self._use = use
        self._url = _check_url(url, use)
        self._secret = "" if secret is None else secret.get_secret_value()
        self._key_advice = f"Check the API key: {use.secret}."
        if use.is_index:
            self._key_advice += " It must be allowed to write."
        if not (self._secret.isascii() and self._secret.isprintable()):  # an error of HTTP would show it
            raise ConfigError(
                "The API key of Qdrant has characters that no key has.", advice=self._key_advice
            )
        self._name = collection
        self._lock = threading.Lock()
        self._client: QdrantClient | None = None

    def ask(self, act: Callable[[QdrantClient], _T]) -> _T:
        """Send requests, once more if the connection was lost, and translate errors.

        All that Loom does may be done twice. What timed out is not sent again.

        Raises:
            StoreUnavailableError, IndexDamagedError: as `VectorIndex`.
        """
        client = self._connect()
        import httpx
        from qdrant_client.common.client_exceptions import QdrantException
        from qdrant_client.http.exceptions import ApiException, ResponseHandlingException

        try:
            try:
                return act(client)
            except ResponseHandlingException as error:
                lost = isinstance(error.source, httpx.NetworkError | httpx.RemoteProtocolError)
                if not lost or isinstance(error.source, httpx.ConnectError):
                    raise
                return act(client)
        except (ApiException, QdrantException, httpx.InvalidURL, *_UNREADABLE) as error:
            raise self._translate(client, error) from error

    def close(self) -> None:
        """Close connections."""
        with self._lock:
            if self._client is not None:
                self._client.close()

    def failed(self, reason: str) -> LoomError:
        """Return the error for an operation that failed for good: the disk is full, or it is damage."""
        return self._full(reason) if _is_full(reason) else self._damaged(reason)

    def unavailable(self, reason: str, advice: str = "") -> StoreUnavailableError:
        """Return the error for a server that cannot be asked now."""
        return unavailable("Qdrant", self._url, reason, advice=advice, use=self._use)

    def _connect(self) -> QdrantClient:
        with self._lock:
            if self._client is not None:
                return self._client
            package = import_client("qdrant_client", engine="Qdrant", extra="qdrant")
            import httpx

            client: QdrantClient = package.QdrantClient(
                url=self._url,
                check_compatibility=False,  # it asks in the background, and prints a warning
                headers={"api-key": self._secret} if self._secret else None,  # `api_key` warns of http
                limits=httpx.Limits(max_connections=100, max_keepalive_connections=20),
                event_hooks={"request": [_set_deadline]},
            )
            self._client = client
            return client

    def _translate(self, client: QdrantClient, error: Exception) -> LoomError:
        import httpx
        from qdrant_client.common.client_exceptions import QdrantException
        from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

        if isinstance(error, UnexpectedResponse):
            return self._translate_status(client, error.status_code or 0, _reason(error.content))
        if isinstance(error, QdrantException):  # status 429
            return self.unavailable(f"it has too many requests: {first_line(error)}")
        source = error.source if isinstance(error, ResponseHandlingException) else error
        if isinstance(source, httpx.ConnectTimeout):
            return self.unavailable(f"it takes no connection within {_CONNECT_SECONDS:.0f} s")
        if isinstance(source, httpx.TimeoutException):
            return self.unavailable("it does not answer in time")
        if isinstance(source, httpx.TransportError | httpx.InvalidURL | UnicodeError):
            return self.unavailable(f"there is no connection: {first_line(source)}")
        return self.unavailable("its answer is none of Qdrant", "Check its address and its version.")

    def _translate_status(self, client: QdrantClient, status: int, reason: str) -> LoomError:
        """Return the error for an HTTP status; `reason` is what Qdrant says, empty if another answers.

        Statuses and texts are those of Qdrant's `src/actix/helpers.rs` and of its `StorageError`.
        """
        said = reason.lower()
        if status == 404 and not reason:
            advice = "Check the address; Qdrant must be 1.10 or later."
            return self.unavailable("it does not know this request", advice)
        if status == 401 or (status == 403 and "locked" not in said):
            refusal = "it refuses the API key" if self._secret else "it wants an API key"
            return self.unavailable(refusal, self._key_advice)
        if status == 507 or _is_full(reason):
            return self._full(reason)
        if (
            status == 404
            or (status == 400 and ("vector dimension error" in said or "vector name error" in said))
            or (status == 500 and (any(sign in said for sign in _BROKEN) or self._is_red(client)))
        ):
            return self._damaged(reason)
        return self.unavailable(f"it answers with status {status}: {reason or 'no reason given'}")

    def _is_red(self, client: QdrantClient) -> bool:
        from qdrant_client.http.exceptions import ApiException

        try:
            info = client.get_collection(self._name)
        except (ApiException, ValueError):
            return False
        return info.status == "red" and not _is_full(str(info.optimizer_status))

    def _full(self, reason: str) -> StoreUnavailableError:
        return self.unavailable(f"it has no room left: {reason}", _DISK_ADVICE)

    def _damaged(self, reason: str) -> IndexDamagedError:
        return IndexDamagedError(
            f"The collection {self._name} of Qdrant at {self._url} cannot be used: {reason.rstrip('.!')}.",
            advice="It is derived from the store, and is built again.",
        )


def _check_url(url: str, use: ServerUse) -> str:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as a port that is no number
        is_valid, parts = False, urlsplit("")
    if not is_valid or parts.query or parts.fragment or parts.username is not None:
        raise ConfigError(
            f"{url.rpartition('@')[2].partition('?')[0][:100]!r} is not the address of a Qdrant server.",
            advice=f"Write {use.address('qdrant', 'http://HOST:6333')}, or https. The API key belongs "
            f"elsewhere: {use.secret}.",
        )
    return url.rstrip("/")


def _set_deadline(request: httpx.Request) -> None:
    is_write = request.method in {"PUT", "PATCH", "DELETE"} or request.url.path.endswith("/points/delete")
    rest = dict.fromkeys(("read", "write", "pool"), _WRITE_SECONDS if is_write else _READ_SECONDS)
    request.extensions["timeout"] = {"connect": _CONNECT_SECONDS, **rest}


def _slices(keys: Collection[int], size: int) -> list[list[int]]:
    ids = list(dict.fromkeys(keys))
    return [ids[start : start + size] for start in range(0, len(ids), size)]


def _request(query: VectorQuery, *, exact: bool) -> models.QueryRequest:
    from qdrant_client.http import models

    must: list[models.Condition] = []
    if query.language:
        language = models.MatchValue(value=query.language)
        must.append(models.FieldCondition(key="language", match=language))
    if query.documents is not None:
        documents = models.MatchAny(any=list(query.documents))
        must.append(models.FieldCondition(key="document", match=documents))
    wide = models.SearchParams(hnsw_ef=max(query.limit, _LEAST_EF))
    return models.QueryRequest(
        query=query.vector.tolist(),
        filter=models.Filter(must=must) if must else None,
        params=models.SearchParams(exact=True) if exact else wide,
        limit=query.limit,
    )


def _is_full(reason: str) -> bool:
    return "no space left" in reason.lower()


def _reason(body: bytes) -> str:
    """Return what Qdrant says is wrong; empty where the body is none of its own."""
    try:
        return " ".join(str(json.loads(body)["status"]["error"]).split())[:300]
    except (ValueError, KeyError, TypeError):
        return ""
