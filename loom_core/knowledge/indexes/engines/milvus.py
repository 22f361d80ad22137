"""Vectors in Milvus: HNSW on a server of its own, by `milvus+http://host:19530`."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlsplit

from loom_core.errors import ConfigError, IndexDamagedError, first_line
from loom_core.knowledge.indexes.engines.servers import (
    INDEX_USE,
    import_client,
    split_batches,
    unavailable,
)
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from pydantic import SecretStr

    from loom_core.errors import StoreUnavailableError
    from loom_core.knowledge.indexes.engines.servers import ServerUse
    from loom_core.knowledge.interface import PassageVectors, VectorQuery

__all__ = ["MilvusConnection", "MilvusVectorIndex"]

_Result = TypeVar("_Result")
_Client: TypeAlias = Any
"""Pymilvus has no types: its modules, clients and errors."""

_CONNECT_SECONDS = 5.0
_SEARCH_SECONDS = 10.0
_WRITE_SECONDS = 60.0
_BUILD_SECONDS = 3600.0
_FRESH_SECONDS = 10.0  # after connecting; twice the staleness that Bounded allows

_ROWS = 1000  # written or read with their vectors at a time; the server takes messages of 64 MB
_KEYS = 10_000  # deleted at a time
_WINDOW = 16_384  # most rows of one search or query: https://milvus.io/docs/limitations.md
_INDEXED_ROWS = 1024  # a segment with fewer gets no index (`dataCoord.segment`): it is compared row by row
_SEARCH_THREADS = 8
_OLDEST = (2, 3)  # the first with upsert

_HNSW = {"M": 16, "efConstruction": 100}
_FEWEST_CANDIDATES = 200
_CANDIDATES = 1.5  # times the limit: `ef` of HNSW, which must not be below the limit

_NO_DOTENV = "PYTHON_DOTENV_DISABLED"
_CHANNEL = {  # a server that comes back is found within a second; gRPC's own pauses grow to two minutes
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 1000,
    "grpc.min_reconnect_backoff_ms": int(_CONNECT_SECONDS * 1000),  # in fact, how long one attempt may take
}

# Codes of https://github.com/milvus-io/milvus/blob/master/pkg/util/merr/errors.go.
_DAMAGE = {
    100: "there is no such collection",
    700: "its index is gone",
    1000: "its files are gone from the storage",
    1002: "its files are cut short",
    1700: "it has other fields",
}
_NOT_LOADED = {101, 103, 106}
_FULL = {7, 9}
_DENIED = {1400, 1401, 1800}

_REBUILD_ADVICE = "It is derived from the store: build it again."
_ADVICE = {
    "full": "Free space on the server, or raise its quota; what was missed is written afterwards.",
    "loading": "Wait a minute: the server is loading the collection into memory, as after a restart. If that "
    "never ends, have it written again: loom-kb rebuild --index vectors.",
    "load": "Load it on the server: load_collection of pymilvus, or Attu.",
    "old": "Upgrade the server to Milvus 2.3 or later.",
}

_importing = threading.Lock()
_connecting = threading.Lock()  # pymilvus connects one client at a time, behind a lock without a time limit


@register("vector_index", "milvus")
class MilvusVectorIndex:
    """`VectorIndex` over one collection of a Milvus server, 2.3 or later.

    A search sees every write of this object, every write before it connected, and those of other processes
    after a moment (5 s at most, the server's `common.gracefulTime`). Reads at the level Strong would see them
    at once, but each waits for a tick of the server's clock, 0.2 s; `count` and `keys` do
    (https://milvus.io/docs/consistency.md). A search returns at most 16,384 passages.
    """

    def __init__(self, url: str, *, secret: SecretStr | None, collection: str, dimension: int) -> None:
        """Take the address; the server is connected at first use.

        Args:
            url: `http://host:19530` or `https://…`, with `?database=` for another than the default; a user
                before the host if the secret is a password.
            secret: password or API key.
            collection: its name.
            dimension: length of the vectors.

        Raises:
            ConfigError: the URL is none of Milvus.
        """
        self._collection = collection
        self._dimension = dimension
        self._connection = MilvusConnection(
            url, secret=secret, collection=collection, check=self._check_dimension
        )
        self._call = self._connection.call
        self._has_written = False

    def create(self) -> None:
        """Make the collection, empty; one that has its name is replaced."""

        def act(client: _Client, left: float) -> None:
            types = _import_clients()[0].DataType
            schema = client.create_schema(auto_id=False)
            schema.add_field("key", types.INT64, is_primary=True)
            schema.add_field("language", types.VARCHAR, max_length=64)
            schema.add_field("document", types.INT64)
            schema.add_field("vector", types.FLOAT_VECTOR, dim=self._dimension)
            index = client.prepare_index_params()
            index.add_index("vector", index_type="HNSW", metric_type="COSINE", params=_HNSW)
            client.drop_collection(self._collection, timeout=left)
            # The level is for the iterator of `keys`, which takes none of its own.
            client.create_collection(
                self._collection, schema=schema, consistency_level="Strong", timeout=left
            )
            # An index must exist before a collection is loaded, and it must be loaded before it is searched.
            client.create_index(self._collection, index, timeout=left, sync=False)
            client.load_collection(self._collection, timeout=left)

        self._write(act)

    def upsert(self, passages: PassageVectors) -> None:
        """Store any number of passages; those with an existing key are overwritten."""
        for batch in split_batches(passages, _ROWS):
            rows = [
                {"key": key, "language": language, "document": document, "vector": vector}
                for key, language, document, vector in zip(
                    batch.keys, batch.languages, batch.documents, batch.vectors, strict=True
                )
            ]
            self._write(lambda client, left, rows=rows: client.upsert(self._collection, rows, timeout=left))

    def delete(self, keys: Collection[int]) -> None:
        """Forget keys; unknown ones are ignored."""
        for ids in _split(keys, _KEYS):
            self._write(lambda client, left, ids=ids: client.delete(self._collection, ids=ids, timeout=left))

    def build(self) -> None:
        """Seal what was written, and wait until its index is built and loaded."""
        if self.count() < _INDEXED_ROWS:
            return
        deadline = time.monotonic() + _BUILD_SECONDS
        self._call(_BUILD_SECONDS, lambda client, left: client.flush(self._collection, timeout=left))
        # The index's own state says "Finished" while there are rows that it does not hold.
        while self._call(_WRITE_SECONDS, self._count_unindexed):
            if time.monotonic() > deadline:
                raise self._connection.unavailable("its index is not built after an hour")
            time.sleep(0.5)
        # Without this, searches use the slices of memory that were written, for some time.
        self._call(_BUILD_SECONDS, lambda client, left: client.refresh_load(self._collection, timeout=left))

    def search(self, queries: Sequence[VectorQuery]) -> list[list[tuple[int, float]]]:
        """Return keys with their cosine for each query, best first.

        Queries with the same limit and restrictions take one request; several requests are made at a time.
        """
        found: list[list[tuple[int, float]]] = [[] for _ in queries]
        groups: dict[tuple[int, str], list[int]] = {}
        for position, query in enumerate(queries):
            if query.limit > 0 and (query.documents is None or len(query.documents)):
                limit = min(query.limit, _WINDOW)
                groups.setdefault((limit, _write_filter(query)), []).append(position)

        def ask(group: tuple[tuple[int, str], list[int]]) -> None:
            (limit, restriction), positions = group
            vectors = [queries[position].vector for position in positions]
            answers = self._call(
                _SEARCH_SECONDS,
                lambda client, left: client.search(
                    self._collection,
                    data=vectors,
                    limit=limit,
                    filter=restriction,
                    search_params={"params": {"ef": max(_FEWEST_CANDIDATES, int(_CANDIDATES * limit))}},
                    consistency_level=self._level(),
                    timeout=left,
                ),
            )
            for position, hits in zip(positions, answers, strict=True):
                found[position] = [(hit.id, hit.distance) for hit in hits]

        if len(groups) == 1:
            ask(next(iter(groups.items())))
        elif groups:
            with ThreadPoolExecutor(min(len(groups), _SEARCH_THREADS)) as threads:
                list(threads.map(ask, groups.items()))
        return found

    def vectors(self, keys: Collection[int]) -> dict[int, NDArray[np.float32]]:
        """Return the stored vectors of keys; unknown ones are left out."""
        import numpy as np

        found: dict[int, NDArray[np.float32]] = {}
        for ids in _split(keys, _ROWS):
            rows = self._call(
                _WRITE_SECONDS,
                lambda client, left, ids=ids: client.query(
                    self._collection,
                    filter=f"key in {ids}",
                    output_fields=["key", "vector"],
                    consistency_level=self._level(),
                    timeout=left,
                ),
            )
            found.update((row["key"], np.asarray(row["vector"], dtype=np.float32)) for row in rows)
        return found

    def keys(self) -> list[int]:
        """Return all keys, in any order."""

        def act(client: _Client, left: float) -> list[int]:
            pages = client.query_iterator(
                self._collection, batch_size=_WINDOW, output_fields=["key"], timeout=left
            )
            found: list[int] = []
            while page := pages.next():
                found += [row["key"] for row in page]
            pages.close()
            return found

        return self._call(_WRITE_SECONDS, act)

    def count(self) -> int:
        """Return how many passages are stored."""
        [row] = self._call(
            _WRITE_SECONDS,
            lambda client, left: client.query(
                self._collection,
                output_fields=["count(*)"],
                consistency_level="Strong",
                timeout=min(left, _SEARCH_SECONDS),
            ),
        )
        return int(row["count(*)"])

    def drop(self) -> None:
        """Delete the collection, if there is one."""
        self._write(lambda client, left: client.drop_collection(self._collection, timeout=left))

    def close(self) -> None:
        """Close connections. The index is not used afterwards."""
        self._connection.close()

    def _level(self) -> str:
        if self._has_written:
            return "Session"  # sees what this process wrote; waits for no more
        fresh = time.monotonic() - self._connection.connected_at < _FRESH_SECONDS
        return "Strong" if fresh else "Bounded"

    def _count_unindexed(self, client: _Client, left: float) -> int:
        return int(client.describe_index(self._collection, "vector", timeout=left)["pending_index_rows"])

    def _write(self, act: Callable[[_Client, float], object]) -> None:
        self._has_written = True
        self._call(_WRITE_SECONDS, act)

    def _check_dimension(self, client: _Client) -> str:
        """Return why the collection cannot be used, if that is its dimension; else an empty text."""
        fields = client.describe_collection(self._collection, timeout=_CONNECT_SECONDS)["fields"]
        found = next(int(field["params"]["dim"]) for field in fields if field["name"] == "vector")
        if found == self._dimension:
            return ""
        return f"its vectors are of dimension {found}, not {self._dimension}"


class MilvusConnection:
    """Requests about one collection of a server, with time limits; errors are translated.

    Args:
        url: as for `MilvusVectorIndex`.
        secret: password or API key.
        collection: its name.
        use: what Loom uses it for. An index that is not loaded is loaded.
        check: returns why the collection cannot be used, or an empty text; asked after an error of the server
            that says nothing of it.

    Attributes:
        connected_at: when it connected, by `time.monotonic`.

    Raises:
        ConfigError: the URL is none of Milvus.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: SecretStr | None,
        collection: str,
        use: ServerUse = INDEX_USE,
        check: Callable[[_Client], str] | None = None,
    ) -> None:
        self._use = use
        self._credentials = (
            f"Check the password or API key: {use.secret}. A password needs its user in the address, as in "
            f"{use.address('milvus', 'http://user@host:19530')}."
        )
        self._address, user, self._database = _split_url(url, use)
        password = secret.get_secret_value() if secret is not None else ""
        self._token = f"{user}:{password}" if user and password else password
        self._collection = collection
        self._check = check
        self._client: _Client = None
        self.connected_at = 0.0

    def call(self, seconds: float, act: Callable[[_Client, float], _Result]) -> _Result:
        """Call `act` with the client and the seconds that are left; a second time where a connection broke.

        Raises:
            StoreUnavailableError: as in `VectorIndex`.
            IndexDamagedError: as in `VectorIndex`.
        """
        milvus, grpc = _import_clients()
        deadline = time.monotonic() + seconds
        try:
            client = self._connect(milvus)
            try:
                return act(client, deadline - time.monotonic())
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
            return act(client, max(deadline - time.monotonic(), 1.0))
        except (milvus.MilvusException, grpc.RpcError) as error:
            raise self._translate(error) from error

    def close(self) -> None:
        """Close connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def unavailable(self, reason: str, *, advice: str = "") -> StoreUnavailableError:
        """Return the error for a server that cannot be asked now."""
        return unavailable("Milvus", self._address, reason, advice=advice, use=self._use)

    def _connect(self, milvus: _Client) -> _Client:
        if self._client is not None:
            return self._client
        if not _connecting.acquire(timeout=_CONNECT_SECONDS):
            raise self.unavailable("it does not answer in time")
        try:
            if self._client is None:
                client = milvus.MilvusClient(
                    self._address,
                    token=self._token,
                    db_name=self._database,
                    timeout=_CONNECT_SECONDS,
                    dedicated=True,  # a shared one is never closed
                    grpc_options=_CHANNEL,
                )
                # pymilvus repeats a failed request until its time is over, and holds up others meanwhile.
                client._get_connection()._on_rpc_error = _raise
                self._check_version(client)
                self._client, self.connected_at = client, time.monotonic()
            return self._client
        finally:
            _connecting.release()

    def _check_version(self, client: _Client) -> None:
        version = str(client.get_server_version(timeout=_CONNECT_SECONDS))
        parts = re.search(r"(\d+)\.(\d+)", version)
        if parts is not None and (int(parts[1]), int(parts[2])) < _OLDEST:
            client.close()
            raise self.unavailable(f"it is Milvus {version}, which is too old", advice=_ADVICE["old"])

    def _translate(self, error: _Client) -> StoreUnavailableError | IndexDamagedError:
        """Return Loom's error for one of pymilvus or gRPC."""
        call = error if callable(getattr(error, "code", None)) else error.__cause__
        if callable(getattr(call, "code", None)):  # of gRPC
            status = call.code().name
            if status in {"UNAUTHENTICATED", "PERMISSION_DENIED"}:
                return self.unavailable("it refuses the credentials", advice=self._credentials)
            if status == "DEADLINE_EXCEEDED":
                return self.unavailable("it does not answer in time")
            return self.unavailable(first_line(Exception(call.details().rpartition(": ")[2])))
        reason = first_line(Exception(error.message))
        if error.code in _DAMAGE:
            return self._damaged(_DAMAGE[error.code])
        if error.code in _DENIED:
            return self.unavailable("it refuses the credentials", advice=self._credentials)
        if error.code in _FULL or "no space left" in reason.casefold():
            return self.unavailable("it has no room left", advice=_ADVICE["full"])
        if error.code in _NOT_LOADED:
            if damage := self._load():
                return self._damaged(damage)
            return self.unavailable(
                "the collection is not loaded yet",
                advice=_ADVICE["loading" if self._use.is_index else "load"],
            )
        if self._check is not None:
            with suppress(Exception):  # it may be as unavailable as what failed
                if damage := self._check(self._client):
                    return self._damaged(damage)
        return self.unavailable(reason)

    def _load(self) -> str:
        """Have the collection loaded, without waiting: it was released, or the server was restarted.

        Returns:
            Why the server can never load it, or an empty text.
        """
        milvus, _ = _import_clients()
        if self._use.is_index:
            with suppress(Exception):
                try:
                    self._client.load_collection(self._collection, timeout=_CONNECT_SECONDS, _async=True)
                except milvus.MilvusException as error:
                    return _DAMAGE.get(error.code, "")
        return ""

    def _damaged(self, reason: str) -> IndexDamagedError:
        return IndexDamagedError(
            f"The collection {self._collection} of Milvus at {self._address} cannot be used: {reason}.",
            advice=_REBUILD_ADVICE,
        )


def _split_url(url: str, use: ServerUse) -> tuple[str, str, str]:
    """Return address without user, user and database of a URL."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 19_530)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        parts, port, options = urlsplit(""), 0, {}
    host = parts.hostname or ""
    is_known = parts.scheme in {"http", "https"} and parts.path in {"", "/"} and not parts.fragment
    if not host or not is_known or options.keys() - {"database"}:
        raise ConfigError(
            "The address of Milvus cannot be used.",
            advice=f"Write it as {use.address('milvus', 'http://localhost:19530')}, or https, with "
            "?database=NAME for another database than the default.",
        )
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}:{port}", parts.username or "", options.get("database", "")


def _write_filter(query: VectorQuery) -> str:
    """Return the restrictions of a query as an expression (https://milvus.io/docs/boolean.md)."""
    restrictions: list[str] = []
    if query.language:
        restrictions.append(f"language == {json.dumps(query.language)}")
    if query.documents is not None:
        restrictions.append(f"document in [{','.join(str(int(key)) for key in query.documents)}]")
    return " and ".join(restrictions)


def _split(keys: Collection[int], size: int) -> Iterator[list[int]]:
    """Yield keys in lists, each key once."""
    unique = [int(key) for key in dict.fromkeys(keys)]
    for start in range(0, len(unique), size):
        yield unique[start : start + size]


def _raise(error: Exception) -> NoReturn:
    raise error


@cache
def _import_clients() -> tuple[_Client, _Client]:
    """Import pymilvus and gRPC: pymilvus without the `.env` that it reads, and without what it prints.

    Raises:
        ConfigError: they are not installed.
    """
    with _importing:
        given = os.environ.get(_NO_DOTENV)
        os.environ[_NO_DOTENV] = "1"
        try:
            milvus = import_client("pymilvus", engine="Milvus", extra="milvus")
        finally:
            del os.environ[_NO_DOTENV]
            if given is not None:
                os.environ[_NO_DOTENV] = given
    for name in ("pymilvus", "pymilvus.milvus_client"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.setLevel(logging.CRITICAL)
    return milvus, import_client("grpc", engine="Milvus", extra="milvus")
