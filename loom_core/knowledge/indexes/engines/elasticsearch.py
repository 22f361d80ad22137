"""Words in Elasticsearch or OpenSearch: one index of a server or a cloud, over the REST interface of both."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from loom_core.errors import ConfigError, IndexDamagedError, InvalidInputError, SourceError, first_line
from loom_core.knowledge.indexes.engines.damage import is_disk_full
from loom_core.knowledge.indexes.engines.servers import LEXICAL, ServerUse, unavailable
from loom_core.knowledge.indexes.engines.token_text import is_searchable, join_tokens
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import httpx2
    from pydantic import SecretStr

    from loom_core.errors import LoomError, StoreUnavailableError
    from loom_core.knowledge.interface import LexicalQuery

__all__ = [
    "ELASTICSEARCH",
    "OPENSEARCH",
    "ElasticsearchLexicalIndex",
    "OpenSearchLexicalIndex",
    "SearchEngineConnection",
    "SearchProduct",
]

_T = TypeVar("_T")

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 10.0
_WRITE_SECONDS = 60.0
_BATCH = 2000  # passages in a request
_BATCH_BYTES = 5_000_000  # in a request of several passages: some clouds take 10 MB
_PAGE = 10_000  # hits in a response; this and the next two are the servers' own limits
_MOST_TERMS = 65_536  # values in a filter
_MOST_TOKENS = 900  # tokens in a query, which has 1,024 clauses with its filters
_MOST_BYTES = 32_766  # in a token: a limit of Lucene
_MOST_KEY = (1 << 63) - 1
_ALIAS = "_loom1"  # its number changes with fields and analyser
_HITS = (
    "responses.status,responses.error,responses.timed_out,responses.hits.total.value,responses.hits.hits.sort"
)
_FAILURES = "errors,items.*.status,items.*.error"
_OTHER_FIELDS = {"strict_dynamic_mapping_exception", "mapper_parsing_exception", "document_parsing_exception"}
_BROKEN = {"corrupt_index_exception", "index_format_too_old_exception", "translog_corrupted_exception"}
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
_INDEX_USE = ServerUse(
    f"{LEXICAL.secret} in the environment, or in the keyring: keyring set loom {LEXICAL.secret}",
    is_index=True,
)
_DISK_ADVICE = (
    "Free space on the server's disk, or lift the block; what it has missed is written then. Nothing is lost."
)


@dataclass(frozen=True, slots=True)
class SearchProduct:
    """A product with the REST interface of Elasticsearch.

    Attributes:
        title: its name.
        index_version: least version for an index of Loom's own.
        source_version: least version for an index that others have filled, which is searched by vectors, too.
        has_keys: whether it has API keys besides passwords of users.
    """

    title: str
    index_version: tuple[int, int]
    source_version: tuple[int, int]
    has_keys: bool


ELASTICSEARCH = SearchProduct("Elasticsearch", (8, 0), (8, 4), has_keys=True)
"""Its searches have the option `knn` since 8.4."""

OPENSEARCH = SearchProduct("OpenSearch", (2, 0), (2, 9), has_keys=False)
"""Its engine faiss decides filters within a search by vectors since 2.9."""


class SearchEngineConnection:
    """Connection to a server of Elasticsearch or OpenSearch, for one index. Any thread may use it.

    Args:
        product: the product.
        url: address of the server, with the user's name if there is one.
        secret: that user's password, or an API key.
        index: name of the index, for messages.
        use: what it is used for.

    Raises:
        ConfigError: the URL is none of a server, or the secret does not fit it.
    """

    def __init__(
        self, product: SearchProduct, url: str, *, secret: SecretStr | None, index: str, use: ServerUse
    ) -> None:
        self._product = product
        self._use = use
        self._index = index
        self._url, user = self._split_url(url)
        asker = f"the user {user!r} and its password" if user else "the API key"
        rights = "manage, read and write indexes named loom_*" if use.is_index else "read the index"
        self._secret_advice = f"Check {asker}: {use.secret}. It must be allowed to {rights}."
        self._headers = self._authorize(user, "" if secret is None else secret.get_secret_value())
        self._lock = threading.Lock()
        self._client: httpx2.Client | None = None
        self._is_checked = False

    def close(self) -> None:
        """Close connections."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def ask(
        self, method: str, path: str, body: bytes = b"", *, read: Callable[[Any], _T] = lambda answer: answer
    ) -> _T:
        """Send a request and read the JSON of its response, and translate errors.

        Raises:
            StoreUnavailableError: the server cannot be asked now.
            IndexDamagedError: there is no such index, or it does not fit the request.
            SourceError: it refuses a search in an index that is not Loom's.
        """
        client = self._connect()
        try:
            if not self._is_checked:
                self._check_version(self._send(client, "GET", "/"))
                self._is_checked = True
            response = self._send(client, method, path, body)
            if not response.is_success:
                raise self._refused(response)
            return read(response.json())
        except _UNREADABLE as error:
            raise self.unavailable(
                f"its answer is none of {self._product.title}", "Check its address and its version."
            ) from error

    def _connect(self) -> httpx2.Client:
        import httpx2

        with self._lock:
            if self._client is None:
                headers = {"Accept": "application/json", **self._headers}
                self._client = httpx2.Client(headers=headers)
            return self._client

    def _send(self, client: httpx2.Client, method: str, path: str, body: bytes = b"") -> httpx2.Response:
        """Send a request, once more if the connection was lost: all but making an index may be done twice."""
        import httpx2

        action = path.rpartition("/")[2].partition("?")[0]
        kind = "application/x-ndjson" if action in {"_bulk", "_msearch"} else "application/json"
        seconds = _READ_SECONDS if method == "GET" or action in {"_msearch", "_search"} else _WRITE_SECONDS
        try:
            request = client.build_request(
                method,
                self._url + path,
                content=body or None,
                headers={"Content-Type": kind} if body else None,
                timeout=httpx2.Timeout(seconds, connect=_CONNECT_SECONDS),
            )
            try:
                return client.send(request)
            except (httpx2.ReadError, httpx2.WriteError, httpx2.CloseError, httpx2.RemoteProtocolError):
                if method == "PUT":
                    raise
                return client.send(request)
        except httpx2.ConnectTimeout as error:
            reason = f"it takes no connection within {_CONNECT_SECONDS:.0f} s"
            raise self.unavailable(reason) from error
        except httpx2.TimeoutException as error:
            raise self.unavailable("it does not answer in time") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            reason = f"there is no connection: {first_line(error)}"
            advice = "Name the authority of its certificate in SSL_CERT_FILE." if "CERTIF" in reason else ""
            raise self.unavailable(reason, advice) from error

    def _check_version(self, response: httpx2.Response) -> None:
        if response.status_code == 403:  # an API key for indexes alone; other requests show whether it fits
            return
        if not response.is_success:
            raise self._refused(response)
        version = response.json()["version"]
        found = "OpenSearch" if version.get("distribution") == "opensearch" else "Elasticsearch"
        if found != self._product.title:
            advice = f"Write {found.lower()}+ in front of its address."
            raise self.unavailable(
                f"it is {found}", advice if self._use.is_index else f"Its kind is {found.lower()}."
            )
        least = self._product.index_version if self._use.is_index else self._product.source_version
        if tuple(map(int, version["number"].split(".")[:2])) < least:
            raise self.unavailable(
                f"it is of version {version['number']}",
                f"{self._product.title} must be {'.'.join(map(str, least))} or later.",
            )

    def _refused(self, response: httpx2.Response) -> LoomError:
        try:
            error = response.json()["error"]
        except _UNREADABLE:
            error = ""
        return self.explain(response.status_code, error)

    def explain(self, status: int, error: dict[str, Any] | str) -> LoomError:
        """Return the error for a status; `error` is what the server says, empty if another answers."""
        kinds, reason = _read_error(error)
        if re.search("/1[02]/", reason) or is_disk_full(reason):  # blocks that a full disk puts on
            return self.unavailable(f"it has no room left: {reason}", _DISK_ADVICE)
        if status == 401 or (status == 403 and "cluster_block_exception" not in kinds):
            refusal = "it refuses the credentials" if self._headers else "it wants credentials"
            return self.unavailable(f"{refusal}: {reason or status}", self._secret_advice)
        if status == 404 and not kinds:
            return self.unavailable("it does not know this request", "Check its address.")
        if status == 413:
            advice = "Raise http.max_content_length there, or the limit of what is in front of it, to 10 MB."
            return self.unavailable("a request is too large for it", advice)
        if (
            kinds & {"index_not_found_exception", *_OTHER_FIELDS, *_BROKEN}
            or "No mapping found for [key]" in reason
        ):
            return IndexDamagedError(
                f"The index {self._index} of {self._product.title} at {self._url} cannot be used: {reason}.",
                advice="It is derived from the store, and is built again.",
            )
        if "maxClauseCount" in reason and not self._use.is_index:
            return InvalidInputError(
                f"The question has too many words for {self._product.title}: {reason}.",
                advice="Ask in a few words or a sentence.",
            )
        if status == 400 and not self._use.is_index:
            return SourceError(
                f"{self._product.title} at {self._url} refuses the search in {self._index!r}: {reason}.",
                advice="Check the filters, and `fields` and `body` of the source.",
            )
        return self.unavailable(f"it answers with status {status}: {reason or 'no reason given'}")

    def unavailable(self, reason: str, advice: str = "") -> StoreUnavailableError:
        """Return the error for a server that cannot be asked now."""
        return unavailable(self._product.title, self._url, reason, advice=advice, use=self._use)

    def _split_url(self, url: str) -> tuple[str, str]:
        """Return the address without the user's name, and that name."""
        with suppress(ValueError):  # a port that is no number
            parts = urlsplit(url)
            if (
                parts.scheme in {"http", "https"}
                and parts.hostname
                and parts.port != 0
                and parts.password is None
                and not parts.query
                and not parts.fragment
            ):
                host = parts.netloc.rpartition("@")[2]
                return f"{parts.scheme}://{host}{parts.path.rstrip('/')}", unquote(parts.username or "")
        shown = re.sub("//[^/]*@", "//", url.partition("?")[0])[:100]  # without what may be secret
        raise ConfigError(
            f"{shown!r} is not the address of {self._product.title}.",
            advice=f"Write {self._address('https://USER@HOST:9200')}, or https://HOST:9200. The password or "
            f"API key is {self._use.secret}.",
        )

    def _authorize(self, user: str, secret: str) -> dict[str, str]:
        """Return the headers that say who asks."""
        if not secret:
            return {}
        if not (user or self._product.has_keys):
            url = self._address("https://USER@HOST:9200")
            raise ConfigError(
                f"{self._product.title} has no API keys, and its address names no user.",
                advice=f"Write {url}; the password is {self._use.secret}.",
            )
        if user:
            pair = f"{user}:{secret}".encode(errors="surrogateescape")  # of the environment, it may be bytes
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        if not (secret.isascii() and secret.isprintable()):  # an error of HTTP would show it
            raise ConfigError(
                f"The API key of {self._product.title} has characters that no key has.",
                advice=self._secret_advice,
            )
        return {"Authorization": f"ApiKey {secret}"}

    def _address(self, url: str) -> str:
        return self._use.address(self._product.title.lower(), url)


class _SearchEngineIndex:
    """`LexicalServerIndex` over one index of Elasticsearch or OpenSearch, which differ in who may ask.

    It has the keys and Loom's own tokens, which the server splits at spaces and nothing else; its built-in
    analysers also split elsewhere. There is one shard, as each shard ranks by its own statistics; its copies
    are as many as the cluster makes by default. Documents as such (`_source`) are not kept: Loom's own store
    has them. No refresh happens but that of `commit`.

    Everything is asked of an alias that `create` makes with the index, since a write to an index that is gone
    would make one with other fields. An index of that name which is not Loom's counts as none.

    Tokens of more than 32,766 bytes are left out. Of a question with more than 900 different tokens, those
    that are repeated most are looked for, and the first ones.
    """

    _product: ClassVar[SearchProduct]

    def __init__(self, url: str, *, secret: SecretStr | None, collection: str) -> None:
        """Take the address; nothing is connected before the first use.

        Raises:
            ConfigError: the URL is none of a server, or the secret does not fit it.
        """
        self._server = SearchEngineConnection(
            self._product, url, secret=secret, index=collection, use=_INDEX_USE
        )
        self._index = collection
        self._alias = collection + _ALIAS

    def create(self) -> None:
        """Make the index, empty; see `LexicalServerIndex`."""
        self.drop()
        fields = {
            "key": {"type": "long"},
            "tokens": {"type": "text", "analyzer": "loom", "index_options": "freqs"},
        }
        settings = {
            "number_of_shards": 1,
            "refresh_interval": "-1",
            "similarity": {"default": {"type": "BM25", "k1": 1.2, "b": 0.75}},
            "analysis": {
                "tokenizer": {"loom": {"type": "simple_pattern_split", "pattern": " "}},
                "analyzer": {"loom": {"type": "custom", "tokenizer": "loom"}},
            },
        }
        body: dict[str, Any] = {
            "settings": settings,
            "mappings": {"dynamic": "strict", "_source": {"enabled": False}, "properties": fields},
            "aliases": {self._alias: {}},
        }
        self._server.ask("PUT", f"/{self._index}", _line(body))

    def add(self, documents: Iterable[tuple[int, Sequence[str] | str]]) -> None:
        """Index token lists, visible after `commit`; see `LexicalServerIndex`.

        Raises:
            InvalidInputError: a token is empty or holds white space, or a key is not positive.
        """
        self._write(_addition(key, join_tokens(tokens)) for key, tokens in documents)

    def delete(self, keys: Collection[int]) -> None:
        """Forget keys, visible after `commit`; see `LexicalServerIndex`."""
        self._write(_line({"delete": {"_id": str(key)}}) for key in keys if _is_key(key))

    def commit(self) -> None:
        """Make everything since the last commit visible to searches; see `LexicalServerIndex`."""
        path = f"/{self._alias}/_refresh"
        if self._server.ask("POST", path, read=lambda answer: answer["_shards"]["failed"]):
            raise self._server.unavailable("it could not make visible what was written")

    def search(self, queries: Sequence[LexicalQuery]) -> list[list[tuple[int, float]]]:
        """Return keys with their score for each query, all by one request; see `LexicalSearch`.

        More requests follow where there are more than 10,000 hits.
        """
        searches = [_make_searches(query) for query in queries]
        self._run([search for parts in searches for search in parts])
        return [_intersect(parts)[: query.limit] for parts, query in zip(searches, queries, strict=True)]

    def keys(self) -> list[int]:
        """Return the indexed keys; see `LexicalServerIndex`."""
        every = _Search({"match_all": {}})
        self._run([every])
        return [key for key, _ in every.hits]

    def count(self) -> int:
        """Return how many keys are indexed; see `LexicalServerIndex`."""
        return self._server.ask("GET", f"/{self._alias}/_count", read=lambda answer: int(answer["count"]))

    def drop(self) -> None:
        """Delete the index, if there is one; see `LexicalServerIndex`."""
        with suppress(IndexDamagedError):
            self._server.ask("DELETE", f"/{self._index}")

    def close(self) -> None:
        """Close connections; see `LexicalServerIndex`."""
        self._server.close()

    def _write(self, lines: Iterable[bytes]) -> None:
        path = f"/{self._alias}/_bulk?require_alias=true&filter_path={_FAILURES}"
        for batch in _batches(lines):
            self._server.ask("POST", path, batch, read=self._check_written)

    def _check_written(self, answer: dict[str, Any]) -> None:
        if answer["errors"]:
            results = [result for item in answer["items"] for result in item.values() if "error" in result]
            raise self._server.explain(results[0]["status"], results[0]["error"])

    def _run(self, searches: list[_Search]) -> None:
        """Fetch the hits of searches, one page of each by one request."""
        while searches:
            body = b"".join(b"{}\n" + _line(search.body()) for search in searches)
            path = f"/{self._alias}/_msearch?filter_path={_HITS}"
            pages = self._server.ask("POST", path, body, read=self._read_pages)
            searches = [search for search, page in zip(searches, pages, strict=True) if search.take(page)]

    def _read_pages(self, answer: dict[str, Any]) -> list[_Page]:
        for response in answer["responses"]:
            if "error" in response:
                raise self._server.explain(response["status"], response["error"])
            if response.get("timed_out"):
                raise self._server.unavailable("it does not answer in time")
        return [_Page.of(response.get("hits", {})) for response in answer["responses"]]


@register("lexical_index", "elasticsearch")
class ElasticsearchLexicalIndex(_SearchEngineIndex):
    """`LexicalServerIndex` over one index of Elasticsearch 8 or later, there or in Elastic Cloud.

    It is reached as `elasticsearch+https://USER@HOST:9200`, and the secret is the password; or without a
    user, and the secret is an API key in the form that Kibana shows (`encoded`). Elasticsearch Serverless,
    which sets shards by itself, is not supported.
    """

    _product = ELASTICSEARCH


@register("lexical_index", "opensearch")
class OpenSearchLexicalIndex(_SearchEngineIndex):
    """`LexicalServerIndex` over one index of OpenSearch 2 or later.

    It is reached as `opensearch+https://USER@HOST:9200`, and the secret is the user's password. From version
    3 on its scores are lower by the factor k1 + 1.
    """

    _product = OPENSEARCH


class _Page(NamedTuple):
    """Hits, given by what they are sorted by, and how many there are in all; 0 if these are not counted."""

    rows: list[list[Any]]
    total: int

    @classmethod
    def of(cls, hits: dict[str, Any]) -> _Page:
        rows = [hit["sort"] for hit in hits.get("hits", ())]
        return cls(rows, int(hits.get("total", {"value": 0})["value"]))


@dataclass(slots=True)
class _Search:
    """A query in the server's language, and its hits so far, page after page."""

    query: dict[str, Any]
    limit: int | None = None
    is_ranked: bool = False
    common: int | None = None
    hits: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    _last: list[Any] = field(default_factory=list[Any])

    def body(self) -> dict[str, Any]:
        """Return the body of the request for the next page."""
        following = {"search_after": self._last} if self._last else {}
        return {
            "query": self.query,
            "sort": ["_score", "key"] if self.is_ranked else ["key"],
            "size": self._page(),
            "track_total_hits": self.common or False,
            "stored_fields": "_none_",
            **following,
        }

    def take(self, page: _Page) -> bool:
        """Take the next hits; return whether there may be more."""
        if self.common is not None and page.total >= self.common:
            return False
        is_full = len(page.rows) == self._page()
        self.hits += [(int(row[-1]), float(row[0]) if self.is_ranked else 0.0) for row in page.rows]
        self._last = page.rows[-1] if page.rows else []
        return is_full and len(self.hits) != self.limit

    def _page(self) -> int:
        return _PAGE if self.limit is None else min(_PAGE, self.limit - len(self.hits))


def _make_searches(query: LexicalQuery) -> list[_Search]:
    """Make the searches whose common hits are those of a query; none where there can be none."""
    limit, tokens = query.limit, list(query.tokens)
    if (limit is not None and limit < 1) or (query.among is not None and not query.among):
        return []
    if query.match == "any":
        tokens = [token for token in tokens if is_searchable(token)]
    if not tokens or not all(map(is_searchable, [*tokens, *query.holding])):
        return []
    among = _among(query.among)
    if query.match == "prefix":
        [prefix] = tokens
        return [_Search({"bool": {"filter": [{"prefix": {"tokens": {"value": prefix}}}, *among]}}, limit)]
    repeats = Counter(tokens).most_common()
    if query.match == "any":
        terms = [{"term": {"tokens": {"value": token, "boost": times}}} for token, times in repeats]
        required = [_holds(token) for token in dict.fromkeys(query.holding)]
        ranked = {
            "should": terms[: _MOST_TOKENS - len(required)],
            "minimum_should_match": 1,
            "filter": [*required, *among],
        }
        return [_Search({"bool": ranked}, limit, is_ranked=True, common=query.common)]
    held = [_holds(token) for token, _ in repeats]
    parts = [held[start : start + _MOST_TOKENS] for start in range(0, len(held), _MOST_TOKENS)]
    return [
        _Search({"bool": {"filter": [*part, *among]}}, limit if len(parts) == 1 else None) for part in parts
    ]


def _holds(token: str) -> dict[str, Any]:
    return {"term": {"tokens": {"value": token}}}


def _among(keys: Collection[int] | None) -> list[dict[str, Any]]:
    """Return the filter for some keys, or none."""
    if keys is None:
        return []
    known = [key for key in keys if _is_key(key)]
    parts = [known[start : start + _MOST_TERMS] for start in range(0, len(known), _MOST_TERMS)]
    return [{"bool": {"should": [{"terms": {"key": part}} for part in parts or [[]]]}}]


def _intersect(searches: list[_Search]) -> list[tuple[int, float]]:
    """Return the hits of the first search that the others have, too."""
    if not searches:
        return []
    others = [{key for key, _ in search.hits} for search in searches[1:]]
    return [hit for hit in searches[0].hits if all(hit[0] in keys for keys in others)]


def _addition(key: int, text: str) -> bytes:
    if not _is_key(key):
        raise InvalidInputError(f"{key} is not a key.", advice="Use the store's chunk keys.")
    if len(text) > _MOST_BYTES // 4:
        text = " ".join(token for token in text.split(" ") if len(token.encode()) <= _MOST_BYTES)
    return _line({"index": {"_id": str(key)}}) + _line({"key": key, "tokens": text})


def _batches(lines: Iterable[bytes]) -> Iterator[bytes]:
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and (len(batch) == _BATCH or size + len(line) > _BATCH_BYTES):
            yield b"".join(batch)
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield b"".join(batch)


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _is_key(key: int) -> bool:
    return 0 < key <= _MOST_KEY


def _read_error(error: dict[str, Any] | str) -> tuple[set[str], str]:
    """Return the kinds of an error and its reason."""
    if isinstance(error, str):
        return set(), " ".join(error.split())[:300]
    causes = [error, *error.get("root_cause", ())]
    reason = str(causes[-1].get("reason", "")) if causes else ""
    return {str(cause.get("type")) for cause in causes}, " ".join(reason.split())[:300].rstrip(".;")
