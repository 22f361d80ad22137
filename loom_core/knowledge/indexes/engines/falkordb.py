"""Graph store in FalkorDB: a graph of a server of the team's own, in Cypher over the protocol of Redis."""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

from loom_core.errors import ConfigError, IndexDamagedError, InvalidInputError, LoomError, first_line
from loom_core.knowledge.indexes.engines.graph_rules import (
    missing_ends_error,
    strongest_first,
    validate_hops,
)
from loom_core.knowledge.indexes.engines.servers import (
    GRAPH,
    import_client,
    unavailable,
)
from loom_core.knowledge.interface import EntityEdge, EntityNode
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from pydantic import SecretStr

    from loom_core.errors import StoreUnavailableError

__all__ = ["FalkorGraphStore"]

_T = TypeVar("_T")
_Identity = tuple[int, str, int]

_PORT = 6379
_OLDEST = 40_000  # version of the server's module: FalkorDB 4; RedisGraph, its predecessor, ended with 2
_CONNECT_SECONDS = 3.0
_ROWS = 1000  # written by a query: some 0.1 s
_KEYS = 5000  # looked up by a query
_LARGEST = (1 << 63) - 1  # larger numbers become this one without an error
_SCALE = 1 << 60
_MARK = "\u2400"  # in front of a 0 it is written for a NUL, in front of a 1 for itself

_SECRET_ADVICE = (
    f"Check the user in the address, and the password in {GRAPH.secret}, in the environment or in "
    f"the keyring: keyring set loom {GRAPH.secret}. The user needs the commands graph.query, "
    "graph.ro_query and graph.delete for keys that begin with loom_."
)
_VERSION_ADVICE = "Use FalkorDB 4 or later: https://docs.falkordb.com."
_MEMORY_ADVICE = "Give the server more memory (maxmemory); what it has missed is written then."
_DISK_ADVICE = "Look at the log and the disk of the server; what it has missed is written then."

# The server writes a floating-point number with fifteen digits, which are not all of them. Scaled by a power
# of two and cut into two whole numbers, a confidence is exact.
_EDGE = f"""a.id, r.predicate, b.id, r.support, toInteger(r.confidence * {_SCALE}.0),
    toInteger((r.confidence * {_SCALE}.0 - toInteger(r.confidence * {_SCALE}.0)) * {_SCALE}.0)"""
_INDEX = "CREATE INDEX FOR (e:Entity) ON (e.id)"
_MARKER = "CREATE (:Loom {writes: 0})"
_VERSION = "MATCH (m:Loom) RETURN m.writes"
# A query that writes makes a graph that is not there. Without its marker nothing is written into it.
_WRITE = """MATCH (:Loom) UNWIND $rows AS x {}
    WITH count(*) AS n MATCH (m:Loom) SET m.writes = m.writes + 1 RETURN m.writes"""
_STORE_ENTITIES = _WRITE.format(
    "MERGE (e:Entity {id: x[0]}) SET e.name = x[1], e.type = x[2], e.mentions = x[3]"
)
_STORE_RELATIONS = _WRITE.format(
    "MATCH (a:Entity {id: x[0]}) MATCH (b:Entity {id: x[2]}) MERGE (a)-[r:RELATION {predicate: x[1]}]->(b) "
    "SET r.support = x[3], r.confidence = x[4]"
)
_DELETE_ENTITIES = _WRITE.format("MATCH (e:Entity {id: x}) DELETE e")
_DELETE_RELATIONS = _WRITE.format(
    # Both ends first: else all relations of a hub would be looked through, for each row.
    "MATCH (a:Entity {id: x[0]}) MATCH (b:Entity {id: x[2]}) WITH a, b, x "
    "MATCH (a)-[r:RELATION {predicate: x[1]}]->(b) DELETE r"
)
_ENTITIES = "UNWIND $keys AS k MATCH (e:Entity {id: k}) RETURN e.id, e.name, e.type, e.mentions"
_KNOWN = "UNWIND $keys AS k MATCH (e:Entity {id: k}) RETURN e.id"
# Of many starts at a time, a step is one product of matrices; after an UNWIND it would be one for each start.
_RING = """MATCH (a:Entity)-[r:RELATION]-(b) WHERE a.id IN $ring AND NOT b.id IN $met
    RETURN b.id, sum(r.support) AS total ORDER BY total DESC, b.id LIMIT $limit"""
_EDGES_AMONG = f"""MATCH (a:Entity)-[r:RELATION]->(b) WHERE a.id IN $keys AND b.id IN $keys
    RETURN {_EDGE}"""
_EDGES_FROM = f"MATCH (a:Entity)-[r:RELATION]->(b) WHERE a.id IN $keys RETURN {_EDGE}"
_EDGES_TO = f"MATCH (b:Entity)<-[r:RELATION]-(a) WHERE b.id IN $keys RETURN {_EDGE}"
_EDGES_OF_RANGE = f"""MATCH (a:Entity)-[r:RELATION]->(b) WHERE a.id >= $first AND a.id <= $last
    RETURN {_EDGE}"""
_COUNT_ENTITIES = "MATCH (e:Entity) RETURN count(e)"
_COUNT_RELATIONS = "MATCH ()-[r:RELATION]->() RETURN count(r)"


@register("graph_store", "falkordb")
class FalkorGraphStore:
    """`RemoteGraphStore` over one graph of FalkorDB 4 or later, reached as `falkordb://host:6379`.

    With TLS it is `falkordb+rediss://host:6379`. The graph has nodes `(:Entity {id, name, type, mentions})`,
    relations `[:RELATION {predicate, support, confidence}]`, and one node `(:Loom {writes})`, its marker: who
    deletes that has the graph built again. The client is that of Redis: FalkorDB's own asks the server in its
    constructor, and reads labels and properties that are not needed here.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: SecretStr | None,
        graph: str,
        question_seconds: float = 5.0,
        work_seconds: float = 30.0,
    ) -> None:
        """Take the address; nothing is connected before the first use.

        Args:
            url: address of the server, with a user if it has one.
            secret: password of the user, or of the server.
            graph: name of the graph.
            question_seconds: time limit of a question.
            work_seconds: time limit of a query that writes, or reads what is to be written.

        Raises:
            ConfigError: the URL is none of FalkorDB.
        """
        self._options = _split_url(url)
        if secret is None or not (password := secret.get_secret_value()):
            self._options.pop("username", None)
        else:
            self._options["password"] = password
        self._name = graph
        self._question_seconds = question_seconds
        self._work_seconds = work_seconds
        self._lock = threading.Lock()
        self._clients: dict[float, Any] = {}
        self._checked = False
        self._sends_limit = True  # until the server says that it has one of its own
        self._writes: int | None = None  # as far as this object knows

    def create(self) -> None:
        """Make the graph, empty; see `RemoteGraphStore`."""
        self.drop()
        self._run("GRAPH.QUERY", _INDEX, seconds=self._work_seconds)
        self._run("GRAPH.QUERY", _MARKER, seconds=self._work_seconds)

    def drop(self) -> None:
        """Delete the graph, if there is one."""
        self._writes = None
        with suppress(IndexDamagedError):
            self._ask(lambda client: client.execute_command("GRAPH.DELETE", self._name), self._work_seconds)

    def version(self) -> int:
        """Return how many queries have written into the graph."""
        return self._read_writes(self._read(_VERSION))

    def upsert_entities(self, entities: Sequence[EntityNode]) -> None:
        """Store entities; an existing key is overwritten.

        Raises:
            InvalidInputError: a number is not below 2^63, or a text is not Unicode.
        """
        last = {entity.key: entity for entity in entities}
        self._write(
            _STORE_ENTITIES, [(each.key, each.name, each.type, each.mentions) for each in last.values()]
        )

    def upsert_relations(self, relations: Sequence[EntityEdge]) -> None:
        """Store relations (identity: subject, predicate, object).

        Raises:
            InvalidInputError: an end of a relation does not exist; then none is stored. Or as for entities.
        """
        last = {(each.subject, each.predicate, each.object): each for each in relations}
        ends = {end for subject, _, object_ in last for end in (subject, object_)}
        known = {key for keys in _batches(ends, _KEYS) for (key,) in self._work(_KNOWN, keys=keys)}
        if missing := ends - known:
            self.version()  # where the graph is gone, that is the reason
            raise missing_ends_error(missing)
        rows = [(*identity, each.support, each.confidence) for identity, each in last.items()]
        self._write(_STORE_RELATIONS, rows)

    def delete_entities(self, keys: Collection[int]) -> None:
        """Forget entities with every relation that touches them; unknown ones are ignored."""
        self._write(_DELETE_ENTITIES, list(keys))

    def delete_relations(self, relations: Collection[_Identity]) -> None:
        """Forget relations by identity; unknown ones are ignored."""
        self._write(_DELETE_RELATIONS, list(relations))

    def get(self, keys: Collection[int]) -> list[EntityNode]:
        """Return the entities with these keys in the order of their keys, unknown ones left out."""
        rows = [
            row for some in _batches(sorted(set(keys)), _KEYS) for row in self._read(_ENTITIES, keys=some)
        ]
        entities = [EntityNode(key, _read_text(name), _read_text(type_), n) for key, name, type_, n in rows]
        return sorted(entities, key=lambda entity: entity.key)

    def neighbours(
        self, key: int, *, hops: int = 1, limit: int = 50
    ) -> tuple[list[EntityNode], list[EntityEdge]]:
        """Return entities around one and the edges among them and to it; an unknown key has none.

        A hop adds the `limit` unvisited entities with the most total support from the entities of the hop
        before it; equals come in the order of their keys. Only those are sent.

        Raises:
            InvalidInputError: `hops` is not 1 to 3.
        """
        validate_hops(hops)
        if limit < 1:
            return [], []
        ring = met = [key]
        for _ in range(hops):
            ring = [other for other, _ in self._read(_RING, ring=ring, met=met, limit=limit)]
            met = [*met, *ring]
            if not ring:
                break
        found = {entity.key: entity for entity in self.get(met)}
        edges = map(_read_edge, self._read(_EDGES_AMONG, keys=met))
        return [found[other] for other in met[1:] if other in found], strongest_first(edges)

    def relations(self, first: int, last: int) -> list[EntityEdge]:
        """Return every relation whose subject's key is from `first` to `last`, in no order."""
        return list(map(_read_edge, self._work(_EDGES_OF_RANGE, first=first, last=last)))

    def touching(self, keys: Collection[int]) -> list[EntityEdge]:
        """Return every relation with an end among the keys, in no order."""
        rows = [
            row
            for some in _batches(keys, _ROWS)
            for query in (_EDGES_FROM, _EDGES_TO)
            for row in self._work(query, keys=some)
        ]
        edges = {(edge.subject, edge.predicate, edge.object): edge for edge in map(_read_edge, rows)}
        return list(edges.values())

    def counts(self) -> tuple[int, int]:
        """Return how many entities and how many relations are stored."""
        ((entities,),), ((relations,),) = self._read(_COUNT_ENTITIES), self._read(_COUNT_RELATIONS)
        return entities, relations

    def close(self) -> None:
        """Close connections."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def _write(self, query: str, rows: Sequence[Any]) -> None:
        """Write rows, some hundred a query; each is written whole or not at all.

        Raises:
            IndexDamagedError: the graph is gone, or the server has lost what it acknowledged before.
        """
        for some in _batches(rows, _ROWS):
            known, self._writes = self._writes, None
            writes = self._read_writes(self._run("GRAPH.QUERY", query, seconds=self._work_seconds, rows=some))
            if known is not None and writes != known + 1:
                raise self._damaged("was set back to an older state")
            self._writes = writes

    def _read(self, query: str, **parameters: object) -> list[list[Any]]:
        return self._run("GRAPH.RO_QUERY", query, seconds=self._question_seconds, **parameters)

    def _work(self, query: str, **parameters: object) -> list[list[Any]]:
        """Read for the upkeep of the graph, which may take longer than a question."""
        return self._run("GRAPH.RO_QUERY", query, seconds=self._work_seconds, **parameters)

    def _run(self, command: str, query: str, *, seconds: float, **parameters: object) -> list[list[Any]]:
        """Run a query and return its rows."""
        given = "".join(f"{name}={_literal(value)} " for name, value in parameters.items())
        arguments = [command, self._name, f"CYPHER {given}{query}" if given else query]

        def run(client: Any) -> list[list[Any]]:  # noqa: ANN401 - a client that is imported by name
            limit = self._sends_limit and command == "GRAPH.RO_QUERY"
            answer = client.execute_command(*arguments, *(("timeout", int(900 * seconds)) if limit else ()))
            return answer[1] if len(answer) == 3 else []

        return self._ask(run, seconds)

    def _ask(self, act: Callable[[Any], _T], seconds: float) -> _T:
        """Act with a client that waits for so long, and translate errors."""
        redis = import_client("redis", engine="FalkorDB", extra="falkordb")
        try:
            client = self._client(redis, seconds)
            try:
                return act(client)
            except redis.ResponseError as error:
                if "TIMEOUT_MAX" not in str(error):
                    raise
                self._sends_limit = False
                return act(client)
        except redis.RedisError as error:
            raise self._explain(redis, error) from error
        except (ValueError, TypeError, LookupError) as error:
            raise self._unavailable(
                f"it does not answer as FalkorDB does ({type(error).__name__})", _VERSION_ADVICE
            ) from error

    def _client(self, redis: Any, seconds: float) -> Any:  # noqa: ANN401 - modules of optional packages
        """Return the client with a limit of time; the first one asks whether the server fits."""
        with self._lock:
            client = self._clients.get(seconds)
            if client is None:
                self._clients[seconds] = client = redis.Redis(
                    **self._options,
                    socket_connect_timeout=_CONNECT_SECONDS,
                    socket_timeout=seconds,
                    retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
                    protocol=2,
                    decode_responses=True,
                )
        if not self._checked:
            self._check_server(redis, client)
            self._checked = True
        return client

    def _check_server(self, redis: Any, client: Any) -> None:  # noqa: ANN401 - modules of optional packages
        asked = client.pipeline(transaction=False)
        asked.execute_command("MODULE", "LIST")
        asked.execute_command("GRAPH.CONFIG", "GET", "RESULTSET_SIZE")
        modules, size = asked.execute(raise_on_error=False)
        # A user need not be allowed to ask either.
        if not isinstance(modules, redis.RedisError):
            version = _graph_version(modules)
            if version < _OLDEST:
                reason = f"its module of graphs is of version {version}" if version else "it has no FalkorDB"
                raise self._unavailable(reason, _VERSION_ADVICE)
        if not isinstance(size, redis.RedisError) and (rows := int(size[1])) >= 0:
            raise self._unavailable(
                f"it cuts answers at {rows:,} rows",
                "Allow any number: GRAPH.CONFIG SET RESULTSET_SIZE -1, or the same where it is started.",
            )

    def _explain(self, redis: Any, error: Exception) -> LoomError:  # noqa: ANN401 - modules of optional packages
        """Return the error for one of the client."""
        text = first_line(error)
        if isinstance(error, redis.AuthenticationError | redis.exceptions.NoPermissionError):
            return self._unavailable(f"it refuses the user or the password ({text})", _SECRET_ADVICE)
        if isinstance(error, redis.TimeoutError) or "timed out" in text:
            return self._unavailable("it does not answer in time")
        if isinstance(error, redis.BusyLoadingError):
            return self._unavailable("it is still loading its data", "Wait until it has. Nothing is lost.")
        if isinstance(error, redis.ConnectionError):
            return self._unavailable(f"the connection failed ({text})")
        if "empty key" in text or "wrong kind of value" in text:
            return self._damaged("is gone")
        if isinstance(error, redis.OutOfMemoryError) or "mem consumption" in text:
            return self._unavailable("it has no memory left", _MEMORY_ADVICE)
        if text.startswith("MISCONF"):
            return self._unavailable("it cannot save its data", _DISK_ADVICE)
        if text.casefold().startswith("unknown command"):
            return self._unavailable("it has no FalkorDB", _VERSION_ADVICE)
        return self._unavailable(f"it answers {text!r}")

    def _read_writes(self, rows: list[list[Any]]) -> int:
        if not rows:
            raise self._damaged("is gone")
        return rows[0][0]

    def _damaged(self, reason: str) -> IndexDamagedError:
        return IndexDamagedError(
            f"The graph {self._name} of FalkorDB at {self._address} {reason}.",
            advice="It is derived from the store, and is built again.",
        )

    def _unavailable(self, reason: str, advice: str = "") -> StoreUnavailableError:
        return unavailable("FalkorDB", self._address, reason, advice=advice)

    @property
    def _address(self) -> str:
        return f"{self._options['host']}:{self._options['port']}"


def _split_url(url: str) -> dict[str, Any]:
    """Return the options of the client for an address."""
    with suppress(ValueError):  # a port that is no number
        parts = urlsplit(url)
        if (
            parts.scheme in {"falkordb", "redis", "rediss"}
            and parts.hostname
            and parts.port != 0
            and parts.path in {"", "/"}
            and not (parts.query or parts.fragment or parts.password)
        ):
            options: dict[str, Any] = {"host": parts.hostname, "port": parts.port or _PORT}
            if parts.username:
                options["username"] = unquote(parts.username)
            if parts.scheme == "rediss":
                options |= {"ssl": True, "ssl_check_hostname": True}
            return options
    shown = url.partition("?")[0].rpartition("@")[2]  # without what may be secret
    raise ConfigError(
        f"{shown!r} is no address of FalkorDB, or has more than that.",
        advice="Write falkordb://host:6379, with a user falkordb://user@host:6379, or with TLS "
        f"falkordb+rediss://host:6379. A password belongs into {GRAPH.secret}.",
    )


def _graph_version(modules: list[list[Any]]) -> int:
    """Return the version of the module of graphs in a list of modules, or 0."""
    for module in modules:
        known = dict(zip(module[::2], module[1::2], strict=True))
        if known["name"] == "graph":
            return int(known["ver"])
    return 0


def _batches(rows: Iterable[_T], size: int) -> Iterator[list[_T]]:
    every = list(rows)
    for start in range(0, len(every), size):
        yield every[start : start + size]


def _literal(value: object) -> str:
    """Write a value as a literal of Cypher, in which a string has no other escapes than of these two.

    The server cuts its queries at a NUL: `_read_text` has it back.

    Raises:
        InvalidInputError: the server cannot hold it.
    """
    match value:
        case str():
            if not _is_unicode(value):
                raise InvalidInputError(
                    f"FalkorDB cannot store the text {value[:60]!r}.",
                    advice="Remove halves of characters from the document.",
                )
            value = value.replace(_MARK, f"{_MARK}1").replace("\0", f"{_MARK}0")
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case int():
            if not -_LARGEST <= value <= _LARGEST:
                raise InvalidInputError(
                    f"FalkorDB cannot store the number {value}.", advice="Use numbers below 2^63."
                )
            return str(value)
        case list() | tuple():
            return f"[{','.join(map(_literal, cast('Sequence[object]', value)))}]"
        case _:
            return repr(value)


def _read_text(text: str) -> str:
    """Return a text as it was before `_literal`."""
    return text.replace(f"{_MARK}0", "\0").replace(f"{_MARK}1", _MARK)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_edge(row: Sequence[Any]) -> EntityEdge:
    subject, predicate, object_, support, high, low = row
    confidence = math.ldexp(high, -60) + math.ldexp(low, -120)
    return EntityEdge(subject, _read_text(predicate), object_, support, confidence)
