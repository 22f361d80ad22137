"""Vectors on a Chroma server, for several processes and machines: `chroma+http://host:8000`."""

from __future__ import annotations

import itertools
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import parse_qsl, urlsplit

from loom_core.errors import ConfigError, IndexDamagedError, LoomError, first_line
from loom_core.knowledge.indexes.engines.chroma import BATCH, HNSW, make_settings, split_ids
from loom_core.knowledge.indexes.engines.damage import is_disk_full
from loom_core.knowledge.indexes.engines.servers import INDEX_USE, split_batches, unavailable
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import chromadb
    import httpx
    import numpy as np
    from chromadb.api.fastapi import FastAPI
    from chromadb.api.types import Metadata, Where
    from numpy.typing import NDArray
    from pydantic import SecretStr

    from loom_core.knowledge.indexes.engines.servers import ServerUse
    from loom_core.knowledge.interface import PassageVectors, VectorQuery

__all__ = ["ChromaConnection", "ChromaServerIndex"]

_T = TypeVar("_T")

_CONNECT_SECONDS = 5.0
_SEARCH_SECONDS = 10.0
_WRITE_SECONDS = 60.0
_BUILD_SECONDS = 3600.0
_EF_SEARCH = 1500  # for a recall of 0.95 among 600 hits
_LISTED = 50_000  # keys that are listed at a time
_FILTERED = 15_000  # documents of one filter: each takes two of SQLite's 32,766 variables on the server
_FEW_DOCUMENTS = 50
_COMPARED = 500  # passages that are compared here: fetching more takes longer than a filtered search
_OVERFETCH = 2
_THREADS = 8
_BROKEN = ("hnsw", "error finding id", "error getting embedding")
_SERVER_ADVICE = "Check the address; it must be a Chroma server of version 1.0 or newer."


@register("vector_index", "chroma")
class ChromaServerIndex:
    """`VectorIndex` over one collection of a Chroma server; ids are the keys as text.

    The server builds its HNSW index while vectors are written. The secret is sent both as `X-Chroma-Token`,
    which Chroma Cloud asks for, and as a bearer token, for a proxy: a server itself checks none.
    (https://docs.trychroma.com/docs/run-chroma/clients)
    """

    def __init__(self, url: str, *, secret: SecretStr | None, collection: str, dimension: int) -> None:
        """Take the server's URL, `http` or `https`; `?tenant=…&database=…` replaces Chroma's defaults.

        Raises:
            ConfigError: the URL is none of a Chroma server, or the secret cannot be a token.
        """
        self._name = f"{collection}.vectors"  # three characters or more, a letter at both ends
        self._dimension = dimension
        self._connection = ChromaConnection(
            url, secret=secret, collection=self._name, check=self._check_dimension
        )
        self._ask = self._connection.ask

    def create(self) -> None:
        """Make the collection, empty; one that has its name is replaced."""

        def replace(api: FastAPI) -> None:
            self._delete_collection(api)
            api.create_collection(
                self._name,
                configuration={"hnsw": {**HNSW, "ef_search": _EF_SEARCH}},
                metadata={"dimension": self._dimension},
                tenant=self._connection.tenant,
                database=self._connection.database,
            )

        self._connection.run(replace, end=_in_seconds(_WRITE_SECONDS))

    def upsert(self, passages: PassageVectors) -> None:
        """Store any number of passages; those with an existing key are overwritten."""
        for batch in split_batches(passages, BATCH):
            ids = [str(key) for key in batch.keys]
            fields = zip(batch.languages, batch.documents, strict=True)
            metadatas: list[Metadata] = [
                {"language": language, "document": document} for language, document in fields
            ]
            self._ask(
                lambda collection, batch=batch, ids=ids, metadatas=metadatas: collection.upsert(
                    ids=ids, embeddings=batch.vectors, metadatas=metadatas
                ),
                end=_in_seconds(_WRITE_SECONDS),
            )

    def delete(self, keys: Collection[int]) -> None:
        """Forget keys; unknown ones are ignored."""
        for ids in split_ids(keys):
            self._ask(lambda collection, ids=ids: collection.delete(ids=ids), end=_in_seconds(_WRITE_SECONDS))

    def build(self) -> None:
        """Wait until every vector is in the HNSW index: a search first adds those that are not."""
        self._ask(lambda collection: collection.count(), end=_in_seconds(_BUILD_SECONDS))

    def search(self, queries: Sequence[VectorQuery]) -> list[list[tuple[int, float]]]:
        """Return keys with their cosine for each query, best first.

        One request takes one restriction only, so several queries are asked at the same time.
        """
        end = _in_seconds(_SEARCH_SECONDS)
        if len(queries) < 2:
            return [self._search(query, end) for query in queries]
        with ThreadPoolExecutor(min(len(queries), _THREADS)) as threads:
            answers = [threads.submit(self._search, query, end) for query in queries]
            return [answer.result() for answer in answers]

    def vectors(self, keys: Collection[int]) -> dict[int, NDArray[np.float32]]:
        """Return the stored vectors of keys; unknown ones are left out."""
        import numpy as np

        stored: dict[int, NDArray[np.float32]] = {}
        for ids in split_ids(keys):
            found = self._ask(
                lambda collection, ids=ids: collection.get(ids=ids, include=["embeddings"]),
                end=_in_seconds(_WRITE_SECONDS),
            )
            embeddings = np.asarray(found["embeddings"], dtype=np.float32)
            stored.update(zip(map(int, found["ids"]), embeddings, strict=True))
        return stored

    def keys(self) -> list[int]:
        """Return all keys, in any order."""
        found: list[int] = []
        for offset in itertools.count(0, _LISTED):
            listed = self._ask(
                lambda collection, offset=offset: collection.get(limit=_LISTED, offset=offset, include=[]),
                end=_in_seconds(_WRITE_SECONDS),
            )["ids"]
            found += map(int, listed)
            if len(listed) < _LISTED:
                break
        return found

    def count(self) -> int:
        """Return how many passages are stored."""
        return self._ask(lambda collection: collection.count(), end=_in_seconds(_SEARCH_SECONDS))

    def drop(self) -> None:
        """Delete the collection, if there is one."""
        self._connection.run(self._delete_collection, end=_in_seconds(_WRITE_SECONDS))

    def close(self) -> None:
        """Close connections. The index is not used afterwards."""
        self._connection.close()

    def _search(self, query: VectorQuery, end: float) -> list[tuple[int, float]]:
        """Search in the way that is the fastest for a restriction: Chroma's filter takes long, if it is wide.

        The passages of few documents are fetched and compared here; for many, twice as many of all passages
        are looked for first, which is enough where most fulfil the restriction.
        """
        if query.limit < 1 or (query.documents is not None and not query.documents):
            return []
        if query.documents is None and not query.language:
            return self._find(query, None, end)
        filters = _make_filters(query)
        hits = None
        if query.documents is not None and len(query.documents) <= _FEW_DOCUMENTS:
            hits = self._compare(query, filters[0], end)
        if hits is None:
            hits = self._find_allowed(query, end)
        if hits is None:
            hits = [hit for where in filters for hit in self._find(query, where, end)]
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[: query.limit]

    def _find(self, query: VectorQuery, where: Where | None, end: float) -> list[tuple[int, float]]:
        found = self._ask(
            lambda collection: collection.query(
                query_embeddings=[query.vector], n_results=query.limit, where=where, include=["distances"]
            ),
            end=end,
        )
        [distances] = cast("list[list[float]]", found["distances"])
        return [(int(id_), 1.0 - distance) for id_, distance in zip(found["ids"][0], distances, strict=True)]

    def _find_allowed(self, query: VectorQuery, end: float) -> list[tuple[int, float]] | None:
        """Search without the restriction, which is applied here; None where too few are left."""
        found = self._ask(
            lambda collection: collection.query(
                query_embeddings=[query.vector],
                n_results=_OVERFETCH * query.limit,
                include=["distances", "metadatas"],
            ),
            end=end,
        )
        documents = None if query.documents is None else frozenset(query.documents)
        [distances] = cast("list[list[float]]", found["distances"])
        [metadatas] = cast("list[list[dict[str, str | int]]]", found["metadatas"])
        hits = [
            (int(id_), 1.0 - distance)
            for id_, distance, metadata in zip(found["ids"][0], distances, metadatas, strict=True)
            if query.language in {"", metadata["language"]}
            and (documents is None or metadata["document"] in documents)
        ]
        return hits if len(hits) >= query.limit else None

    def _compare(self, query: VectorQuery, where: Where, end: float) -> list[tuple[int, float]] | None:
        """Fetch the passages that fulfil a restriction and compare each; None where there are too many."""
        import numpy as np

        found = self._ask(
            lambda collection: collection.get(where=where, limit=_COMPARED + 1, include=["embeddings"]),
            end=end,
        )
        if len(found["ids"]) > _COMPARED:
            return None
        vectors = np.asarray(found["embeddings"], dtype=np.float32).reshape(-1, self._dimension)
        return list(zip(map(int, found["ids"]), (vectors @ query.vector).tolist(), strict=True))

    def _check_dimension(self, metadata: Metadata) -> None:
        dimension = metadata.get("dimension")
        if dimension != self._dimension:
            raise IndexDamagedError(
                f"The vectors in {self._name} of Chroma at {self._connection.address} are of dimension "
                f"{dimension}, not {self._dimension}.",
                advice="It is derived from the store, and is built again.",
            )

    def _delete_collection(self, api: FastAPI) -> None:
        import httpx

        self._connection.forget()
        try:
            api.delete_collection(
                self._name, tenant=self._connection.tenant, database=self._connection.database
            )
        except httpx.HTTPStatusError as error:
            if not _is_missing_collection(error.response):
                raise


class ChromaConnection:
    """Requests about one collection of a server, with time limits; errors are translated.

    Args:
        url: as for `ChromaServerIndex`.
        secret: the token.
        collection: its name.
        use: what Loom uses it for.
        check: raises if the metadata of a collection that was found are not as expected.

    Attributes:
        address: address of the server, without a query.
        tenant: the tenant that the URL names, or the default.
        database: the database that the URL names, or the default.

    Raises:
        ConfigError: the URL is none of a Chroma server, or the secret cannot be a token.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: SecretStr | None,
        collection: str,
        use: ServerUse = INDEX_USE,
        check: Callable[[Metadata], None] | None = None,
    ) -> None:
        self._use = use
        self._token_advice = f"Check its token: {use.secret}."
        self.address, options = _split_url(url, use)
        self.tenant = options.get("tenant", "default_tenant")
        self.database = options.get("database", "default_database")
        self._headers = _make_headers(secret, self._token_advice)
        self._name = collection
        self._check = check
        self._lock = threading.Lock()
        self._deadlines = threading.local()
        self._api: FastAPI | None = None
        self._checked = False
        self._collection: chromadb.Collection | None = None

    def ask(self, act: Callable[[chromadb.Collection], _T], *, end: float) -> _T:
        """Act on the collection, which is looked up again if it was made again meanwhile; see `run`."""
        import httpx

        def run(api: FastAPI) -> _T:
            known = self._collection
            if known is not None:
                try:
                    return act(known)
                except httpx.HTTPStatusError as error:
                    if not _is_missing_collection(error.response):
                        raise
            self._collection = found = self._find_collection(api)
            return act(found)

        return self.run(run, end=end)

    def run(self, act: Callable[[FastAPI], _T], *, end: float) -> _T:
        """Act before a time, a second time if the connection was lost, and translate errors.

        Args:
            act: what to do.
            end: the time, of `time.monotonic`.

        Raises:
            StoreUnavailableError, IndexDamagedError: as `VectorIndex`.
        """
        import httpx
        from chromadb.errors import ChromaError

        try:
            try:
                return act(self._connect(end))
            except (httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.RemoteProtocolError):
                return act(self._connect(end))
        except LoomError:
            raise
        except httpx.HTTPStatusError as error:
            raise self._explain(error.response) from error
        except httpx.TimeoutException as error:
            raise self.unavailable("it does not answer in time") from error
        except httpx.HTTPError as error:
            raise self.unavailable(f"the connection failed ({first_line(error)})") from error
        except (ChromaError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise self.unavailable(
                f"it does not answer as Chroma does ({type(error).__name__})", _SERVER_ADVICE
            ) from error

    def forget(self) -> None:
        """Look the collection up again at the next request."""
        self._collection = None

    def close(self) -> None:
        """Close connections."""
        with self._lock:
            if self._api is not None:
                _session(self._api).close()  # Chroma's own client leaves it open

    def unavailable(self, reason: str, advice: str = "") -> LoomError:
        """Return the error for a server that cannot be asked now."""
        return unavailable("Chroma", self.address, reason, advice=advice, use=self._use)

    def _find_collection(self, api: FastAPI) -> chromadb.Collection:
        import chromadb

        model = api.get_collection(self._name, tenant=self.tenant, database=self.database)
        if self._check is not None:
            self._check(model.metadata or {})
        return chromadb.Collection(client=api, model=model, embedding_function=None)

    def _connect(self, end: float) -> FastAPI:
        """Return the client, with an end for its requests; at first use, check that the server fits it."""
        with self._lock:
            if self._api is None:
                self._api = self._open_client()
            api = self._api
        if not self._checked:
            self._deadlines.end = min(end, _in_seconds(_CONNECT_SECONDS))
            version = api.get_version()
            if int(version.partition(".")[0]) < 1:
                raise self.unavailable(f"it is of version {version}", _SERVER_ADVICE)
            api.get_database(self.database, tenant=self.tenant)
            self._checked = True
        self._deadlines.end = end
        return api

    def _open_client(self) -> FastAPI:
        """Open the part of `chromadb.HttpClient` that talks HTTP.

        HttpClient asks the server in its constructor, with no time limit, so that a server that hangs would
        hang every process that uses it.
        """
        from chromadb.api.fastapi import FastAPI
        from chromadb.config import System

        settings = make_settings()
        settings.chroma_server_host = self.address
        settings.chroma_server_http_port = urlsplit(self.address).port or 80  # required, and not used
        settings.chroma_server_ssl_enabled = self.address.startswith("https")
        settings.chroma_server_headers = dict(self._headers)
        api = System(settings).instance(FastAPI)
        _session(api).event_hooks = {"request": [self._limit_time], "response": [_raise_for_status]}
        return api

    def _limit_time(self, request: httpx.Request) -> None:
        left = max(self._deadlines.end - time.monotonic(), 0.001)
        request.extensions["timeout"] = {
            "connect": min(left, _CONNECT_SECONDS),
            "read": left,
            "write": left,
            "pool": left,
        }

    def _explain(self, response: httpx.Response) -> LoomError:
        """Return the error for a response that is none of success."""
        status = response.status_code
        kind, message = _read_error(response)
        if status in {401, 403}:
            reason = "it refuses the token" if self._headers else "it asks for a token"
            return self.unavailable(f"{reason} ({status})", self._token_advice)
        if is_disk_full(message):
            return self.unavailable("its disk is full", "Free some space on the server; nothing is lost.")
        if (
            _is_missing_collection(response)
            or (kind == "InvalidArgumentError" and "dimension" in message)
            or any(sign in message.casefold() for sign in _BROKEN)
        ):
            return IndexDamagedError(
                f"{self._name} of Chroma at {self.address} cannot be used: {message}.",
                advice="It is derived from the store, and is built again.",
            )
        if kind == "NotFoundError":
            return self.unavailable(
                message, "Check tenant and database of the address, or create them there."
            )
        if not kind and status < 500:
            return self.unavailable(f"it answers with {status}, as Chroma does not", _SERVER_ADVICE)
        return self.unavailable(f"it answers with {status} {message}".rstrip())


def _in_seconds(seconds: float) -> float:
    return time.monotonic() + seconds


def _split_url(url: str, use: ServerUse) -> tuple[str, dict[str, str]]:
    """Return the address without a query, and the query's options."""
    with suppress(ValueError):  # a port that is no number
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if (
            parts.scheme in {"http", "https"}
            and parts.hostname
            and parts.port != 0
            and parts.username is None
            and not parts.fragment
            and options.keys() <= {"tenant", "database"}
            and all(options.values())
        ):
            return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}", options
    shown = re.sub("//[^/]*@", "//", url.partition("?")[0])  # without what may be secret
    raise ConfigError(
        f"{shown!r} is no address of a Chroma server, or has more than that.",
        advice="Write http:// or https://, host and port, such as "
        f"{use.address('chroma', 'http://localhost:8000')}; only ?tenant=…&database=… may follow. A token "
        f"belongs elsewhere: {use.secret}.",
    )


def _make_headers(secret: SecretStr | None, advice: str) -> dict[str, str]:
    token = "" if secret is None else secret.get_secret_value().strip()
    if not token:
        return {}
    if not (token.isascii() and token.isprintable()):
        raise ConfigError("The token for Chroma has characters that no token can have.", advice=advice)
    return {"X-Chroma-Token": token, "Authorization": f"Bearer {token}"}


def _make_filters(query: VectorQuery) -> list[Where]:
    """Make the filters whose hits together fulfil a query's restriction."""
    language = {"language": query.language}
    if query.documents is None:
        return [cast("Where", language)]
    filters: list[Where] = []
    documents = list(dict.fromkeys(query.documents))
    for start in range(0, len(documents), _FILTERED):
        among = {"document": {"$in": documents[start : start + _FILTERED]}}
        filters.append(cast("Where", {"$and": [language, among]} if query.language else among))
    return filters


def _session(api: FastAPI) -> httpx.Client:
    return api._session  # pyright: ignore[reportPrivateUsage] - it has no other way in


def _raise_for_status(response: httpx.Response) -> None:
    """Raise before Chroma's client does, which forgets the status."""
    if not response.is_success:
        response.read()
        response.raise_for_status()


def _read_error(response: httpx.Response) -> tuple[str, str]:
    """Return kind and message of Chroma's own error; both are empty where something else answers."""
    try:
        body = response.json()
        return str(body["error"]), first_line(Exception(body["message"]))
    except (ValueError, KeyError, TypeError):
        return "", ""


def _is_missing_collection(response: httpx.Response) -> bool:
    kind, message = _read_error(response)
    return kind == "NotFoundError" and message.startswith("Collection")
