"""Words in Elasticsearch and OpenSearch: the contract over HTTP, and the bad days of a server."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from collections.abc import Callable, Generator
from typing import Any

import pytest
from pydantic import SecretStr

from loom_core.errors import ConfigError, IndexDamagedError, LoomError, StoreUnavailableError
from loom_core.knowledge.interface import LexicalQuery, LexicalServerIndex
from loom_core.plugins import create
from loom_core.testing.lexical_stores import LexicalServerContract
from tests.fixtures.store_servers import free_port, store_program
from tests.fixtures.store_servers.elasticsearch import ElasticError, ElasticServer

_KEY = "ZXM6a2V5LW9mLW5vLXZhbHVl"
_PASSWORD = "pässword of no value"
_BASIC = f"Basic {base64.b64encode(f'loom:{_PASSWORD}'.encode()).decode()}"
# The requests that Loom made, by the vendor's own client, which looks at the server's headers and answers.
_BY_THE_VENDOR = """
import json, sys

engine, url, requests = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
if engine == "elasticsearch":
    from elasticsearch import Elasticsearch
    client = Elasticsearch(url)
    lines, whole = {"_bulk": "operations", "_msearch": "searches"}, lambda body: body
else:
    from opensearchpy import OpenSearch
    client = OpenSearch(url)
    lines, whole = {"_bulk": "body", "_msearch": "body"}, lambda body: {"body": body}
client.info()
for method, path, parameters, body in requests:
    _, index, action = (path + "/").split("/")[:3]
    if action in lines:
        call = client.bulk if action == "_bulk" else client.msearch
        answer = call(index=index, **{lines[action]: body}, **parameters)
    elif action == "_refresh":
        answer = client.indices.refresh(index=index)
    elif action == "_count":
        answer = client.count(index=index)
    elif method == "DELETE":
        answer = client.indices.delete(index=index)
    else:
        answer = client.indices.create(index=index, **whole(body))
    print(json.dumps(answer if isinstance(answer, dict) else answer.body))
"""
_ENGINES = ("elasticsearch", "opensearch")
_opened: list[LexicalServerIndex] = []


def _real(engine: str) -> pytest.MarkDecorator:
    name = f"LOOM_TEST_{engine.upper()}_URL"
    reason = f"{name} names no server, such as https://elastic@localhost:9200."
    return pytest.mark.skipif(name not in os.environ, reason=reason)


def _real_url(engine: str) -> str:
    return f"{engine}+{os.environ.get(f'LOOM_TEST_{engine.upper()}_URL', '')}"


def _real_secret(engine: str) -> SecretStr | None:
    secret = os.environ.get(f"LOOM_TEST_{engine.upper()}_SECRET")
    return None if secret is None else SecretStr(secret)


@pytest.fixture(scope="module")
def with_key() -> Generator[ElasticServer]:
    server = ElasticServer(authorization=f"ApiKey {_KEY}", prefix="/words")
    server.is_restricted = True
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def with_password() -> Generator[ElasticServer]:
    server = ElasticServer("opensearch", authorization=_BASIC)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def server() -> Generator[ElasticServer]:
    server = ElasticServer()
    server.start()
    yield server
    server.kill()


@pytest.fixture(autouse=True)
def closed() -> Generator[None]:
    yield
    while _opened:
        _opened.pop().close()


class TestElasticsearchLexicalIndex(LexicalServerContract):
    secret = SecretStr(_KEY)
    unreachable = f"elasticsearch+http://127.0.0.1:{free_port()}"

    @pytest.fixture(autouse=True)
    def _at(self, with_key: ElasticServer) -> None:
        type(self).url = f"elasticsearch+{with_key.url}"


class TestOpenSearchLexicalIndex(LexicalServerContract):
    secret = SecretStr(_PASSWORD)
    unreachable = f"opensearch+http://loom@127.0.0.1:{free_port()}"

    @pytest.fixture(autouse=True)
    def _at(self, with_password: ElasticServer) -> None:
        type(self).url = f"opensearch+{with_password.url.replace('//', '//loom@')}"


@_real("elasticsearch")
class TestRealElasticsearch(LexicalServerContract):
    url = _real_url("elasticsearch")
    secret = _real_secret("elasticsearch")
    unreachable = "elasticsearch+http://127.0.0.1:9"


@_real("opensearch")
class TestRealOpenSearch(LexicalServerContract):
    url = _real_url("opensearch")
    secret = _real_secret("opensearch")
    unreachable = "opensearch+http://127.0.0.1:9"


def test_an_index_is_made_for_tokens_as_they_are_and_for_one_ranking(server: ElasticServer) -> None:
    _filled(server)
    [index] = server.indexes.values()
    assert index.settings["number_of_shards"] == 1
    assert index.settings["refresh_interval"] == "-1"
    assert index.settings["similarity"] == {"default": {"type": "BM25", "k1": 1.2, "b": 0.75}}
    assert index.mappings["_source"] == {"enabled": False}
    assert [(each.method, each.path) for each in server.asked] == [
        ("GET", "/"),
        ("DELETE", "/notes"),
        ("PUT", "/notes"),
        ("POST", "/notes_loom1/_bulk"),
        ("POST", "/notes_loom1/_refresh"),
    ]


def test_no_connection_before_the_first_use_and_one_request_for_all_queries(server: ElasticServer) -> None:
    _open(server).close()
    index = _filled(server)
    server.asked.clear()
    index.search([LexicalQuery(["a"], 5), LexicalQuery(["a", "b"], match="all"), LexicalQuery([], 5)])
    [asked] = server.asked
    assert asked.path == "/notes_loom1/_msearch"
    assert len(asked.body) == 4
    index.search([LexicalQuery(["\ud800"], 5), LexicalQuery(["a"], 0), LexicalQuery(["a"], 5, among=())])
    assert len(server.asked) == 1


def test_more_than_a_page_of_hits_is_fetched_page_by_page(server: ElasticServer) -> None:
    index = _filled(server, ["a b"] * 10_050)
    server.asked.clear()
    queries = [LexicalQuery(["a"], 20_000), LexicalQuery(["b"], match="all"), LexicalQuery(["b"], 10_000)]
    assert [len(hits) for hits in index.search(queries)] == [10_050, 10_050, 10_000]
    assert [len(each.body) for each in server.asked] == [6, 4]


def test_batches_are_bounded_in_bytes_and_passages(server: ElasticServer) -> None:
    server.largest = 6_000_000
    index = _open(server)
    index.create()
    server.asked.clear()
    index.add((key, ["x" * 30_000] * 24) for key in range(1, 21))
    index.add((key, "a") for key in range(21, 5_021))
    index.delete(range(1, 2_500))
    index.commit()
    assert index.count() == 5_020 - 2_499
    writes = [each for each in server.asked if each.path.endswith("_bulk")]
    assert [len(each.body) for each in writes] == [12, 12, 12, 4, 4_000, 4_000, 2_000, 2_000, 499]


def test_a_token_that_lucene_cannot_hold_is_left_out(server: ElasticServer) -> None:
    index = _open(server)
    index.create()
    index.add([(1, ["a", "长" * 11_000, "b"]), (2, ["长" * 10_922])])
    index.commit()
    assert index.search([LexicalQuery(["长" * 11_000], 5)]) == [[]]
    assert index.search([LexicalQuery(["a", "b"], match="all")]) == [[(1, 0.0)]]
    assert [key for key, _ in index.search([LexicalQuery(["长" * 10_922], 5)])[0]] == [2]


def test_keys_that_cannot_be_are_refused_and_never_looked_for(server: ElasticServer) -> None:
    index = _filled(server)
    with pytest.raises(LoomError, match="is not a key"):
        index.add([(0, "a")])
    assert index.search([LexicalQuery(["a"], 5, among=[0, -1, 2**63])]) == [[]]


@pytest.mark.parametrize("lost", [True, False])
def test_an_index_that_another_program_deletes_or_replaces_is_damage(
    server: ElasticServer, *, lost: bool
) -> None:
    index = _filled(server)
    server.lose("notes") if lost else server.take_over("notes", words={"type": "text"})
    for act in _acts(index):
        with pytest.raises(IndexDamagedError, match=r"notes .*no such index.*built again"):
            act()
    assert [*server.indexes] == ([] if lost else ["notes"]), "A write made no index."
    index.create()
    assert index.count() == 0


def test_other_fields_under_the_same_alias_are_damage(server: ElasticServer) -> None:
    index = _filled(server)
    server.take_over("notes", alias="notes_loom1", words={"type": "text"})
    server.indexes["notes"].mappings["dynamic"] = "strict"
    with pytest.raises(IndexDamagedError, match=r"No mapping found for \[key\]"):
        index.search([LexicalQuery(["a"], 5)])
    with pytest.raises(IndexDamagedError, match="mapping set to strict"):
        index.add([(1, "a")])


def test_a_full_disk_is_no_damage_and_does_not_lose_the_index(server: ElasticServer) -> None:
    index = _filled(server)
    server.is_full = True
    with pytest.raises(StoreUnavailableError, match=r"no room left: .*disk usage exceeded") as caught:
        index.add([(21, "a")])
    assert "Free space" in caught.value.advice
    assert index.count() == 20
    server.is_full = False
    index.add([(21, "a")])
    index.commit()
    assert index.count() == 21


@pytest.mark.parametrize("engine", _ENGINES)
def test_requests_and_answers_are_those_of_the_vendors_clients(engine: str) -> None:
    server = ElasticServer(engine)
    server.start()
    index = _filled(server, engine=engine)
    index.search(
        [
            LexicalQuery(["a", "b", "b"], 5, among=[1, 2]),
            LexicalQuery(["a", "b"], 5, holding=["a"], common=21),
            LexicalQuery(["a"], match="prefix"),
        ]
    )
    assert (index.count(), len(index.keys())) == (20, 20)
    index.delete([1])
    index.drop()
    ours = [[each.method, each.path, each.parameters, each.body] for each in server.asked]
    requests = [each for each in ours if each[0] == "PUT" or "_" in each[1]] + ours[-1:]
    server.asked.clear()
    done = subprocess.run(
        [store_program("python"), "-c", _BY_THE_VENDOR, engine, server.url, json.dumps(requests)],
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = [[each.path, each.parameters, each.body] for each in server.asked if each.path != "/"]
    assert theirs == [each[1:] for each in requests]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(requests)
    assert [len(each["hits"]["hits"]) for each in answers[3]["responses"]] == [2, 5, 20]
    server.kill()


def _block(status: int, text: str) -> ElasticError:
    return ElasticError(status, "cluster_block_exception", f"blocked by: [{text}];")


@pytest.mark.parametrize(
    ("refusal", "message", "advice"),
    [
        (_block(403, "FORBIDDEN/12/index read-only / allow delete (api)"), "no room left", "Free space"),
        (_block(403, "FORBIDDEN/10/cluster create-index blocked (api)"), "no room left", "Free space"),
        (ElasticError(500, "i_o_exception", "No space left on device"), "no room left", "Free space"),
        (_block(403, "FORBIDDEN/8/index write (api)"), "status 403: .*FORBIDDEN/8", "Start it"),
        (_block(503, "SERVICE_UNAVAILABLE/2/no master"), "status 503: .*no master", "Start it"),
        (
            ElasticError(
                503,
                "search_phase_execution_exception",
                "all shards failed",
                cause=("no_shard_available_action_exception", "[notes][0]"),
            ),
            r"status 503: \[notes\]",
            "Start it",
        ),
        (
            ElasticError(429, "circuit_breaking_exception", "[parent] Data too large"),
            "status 429: .*too large",
            "",
        ),
        (
            ElasticError(429, "es_rejected_execution_exception", "rejected execution"),
            "status 429: rejected",
            "",
        ),
        (ElasticError(413, "", ""), "request is too large", "http.max_content_length"),
        (ElasticError(502, "", "<html>Bad Gateway</html>"), "status 502: no reason given", "Start it"),
        (ElasticError(404, "", "404 page not found"), "does not know this request", "Check its address"),
        (
            ElasticError(403, "security_exception", "action is unauthorized"),
            "it wants credentials: action is unauthorized",
            "LOOM_LEXICAL_SECRET",
        ),
        (b"<html>Sign in</html>", "none of Elasticsearch", "Check its address"),
        (b'{"tally": 7}', "none of Elasticsearch", "Check its address"),
        (b"[]", "none of Elasticsearch", "Check its address"),
    ],
)
def test_what_a_server_refuses_is_no_damage(
    server: ElasticServer, refusal: ElasticError | bytes, message: str, advice: str
) -> None:
    index = _filled(server)
    server.refusals = [refusal]
    with pytest.raises(StoreUnavailableError, match=message) as caught:
        index.count()
    assert server.url in caught.value.message
    assert advice in caught.value.advice
    assert index.count() == 20


def test_a_broken_index_is_damage(server: ElasticServer) -> None:
    index = _filled(server)
    cause = ("corrupt_index_exception", "checksum failed (hardware problem?)")
    server.refusals = [
        ElasticError(500, "search_phase_execution_exception", "all shards failed", cause=cause)
    ]
    with pytest.raises(IndexDamagedError, match="checksum failed"):
        index.count()


def test_a_search_that_the_server_cuts_short_is_no_answer(server: ElasticServer) -> None:
    index = _filled(server)
    server.refusals = [b'{"responses": [{"status": 200, "timed_out": true}]}']
    with pytest.raises(StoreUnavailableError, match="does not answer in time"):
        index.search([LexicalQuery(["a"], 5)])
    server.refusals = [b'{"_shards": {"total": 2, "successful": 1, "failed": 1}}']
    with pytest.raises(StoreUnavailableError, match="could not make visible"):
        index.commit()


@pytest.mark.parametrize(
    ("product", "version", "engine", "message", "advice"),
    [
        ("elasticsearch", "7.17.29", "elasticsearch", "of version 7.17.29", "must be 8.0 or later"),
        ("opensearch", "1.3.20", "opensearch", "of version 1.3.20", "must be 2.0 or later"),
        ("opensearch", "3.2.0", "elasticsearch", "it is OpenSearch", "Write opensearch+"),
        ("elasticsearch", "9.5.1", "opensearch", "it is Elasticsearch", "Write elasticsearch+"),
    ],
)
def test_a_server_that_does_not_fit_says_so(
    product: str, version: str, engine: str, message: str, advice: str
) -> None:
    server = ElasticServer(product)
    server.version = version
    server.start()
    index = _open(server, engine=engine)
    for act in (*_acts(index), index.create):
        with pytest.raises(StoreUnavailableError, match=message) as caught:
            act()
        assert advice in caught.value.advice
    assert {each.path for each in server.asked} == {"/"}
    server.kill()


@pytest.mark.parametrize(
    ("secret", "message"), [(None, "it wants credentials"), ("d3Jvbmc", "it refuses the credentials")]
)
def test_an_api_key_that_is_wrong(with_key: ElasticServer, secret: str | None, message: str) -> None:
    index = _open(with_key, secret=secret)
    for act in (*_acts(index), index.create):
        with pytest.raises(StoreUnavailableError, match=message) as caught:
            act()
        assert "keyring set loom LOOM_LEXICAL_SECRET" in caught.value.advice
        assert "d3Jvbmc" not in _story(caught.value)


def test_a_password_that_is_wrong(with_password: ElasticServer) -> None:
    for url in (with_password.url.replace("//", "//loom@"), with_password.url.replace("//", "//Lo%20om@")):
        index = _create("opensearch", url, "wrong password")
        with pytest.raises(StoreUnavailableError, match="it refuses the credentials: 401") as caught:
            index.count()
        assert "the user 'lo" in caught.value.advice.lower()
        assert "wrong password" not in _story(caught.value)


def test_a_server_that_is_killed_and_comes_back_is_searched_again(server: ElasticServer) -> None:
    index = _filled(server)
    server.kill()
    server.start()
    assert len(index.search([LexicalQuery(["a"], 5)])[0]) == 5  # over a connection that is dead
    for _ in range(2):
        server.kill()
        for act in _acts(index):
            with pytest.raises(StoreUnavailableError, match="there is no connection"):
                act()
        server.start()
        assert index.count() == 20


def test_a_connection_that_dies_is_replaced_once(server: ElasticServer) -> None:
    index = _filled(server)
    server.refusals = [None]
    index.add([(21, "a")])
    index.commit()
    assert index.count() == 21
    server.refusals = [None, None]
    with pytest.raises(StoreUnavailableError, match="there is no connection"):
        index.count()
    server.refusals = [None]
    index.create()
    assert index.count() == 0
    server.lose("notes")
    server.refusals = [ElasticError(404, "index_not_found_exception", "no such index [notes]"), None]
    with pytest.raises(StoreUnavailableError, match="there is no connection"):
        index.create()  # it may have been made


def test_connections_are_used_again(server: ElasticServer) -> None:
    index = _filled(server)
    for _ in range(5):
        index.count()
    assert len({each.client for each in server.asked}) == 1


@pytest.mark.slow
def test_a_server_that_hangs_is_not_waited_for_without_end(server: ElasticServer) -> None:
    index = _filled(server)
    server.paused = True
    failures: list[LoomError] = []

    def fail(act: Callable[[], object]) -> None:
        with pytest.raises(StoreUnavailableError, match="does not answer in time") as caught:
            act()
        failures.append(caught.value)

    reads = [index.count, index.keys, lambda: index.search([LexicalQuery(["a"], 5)])]
    threads = [threading.Thread(target=fail, args=(act,)) for act in reads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(failures) == 3
    server.paused = False
    assert index.count() == 20


def test_a_host_that_cannot_be_is_unavailable() -> None:
    for host in ("words..invalid", "xn--"):
        index = _create("opensearch", f"http://{host}")
        with pytest.raises(StoreUnavailableError, match="no connection"):
            index.count()


@pytest.mark.parametrize("engine", _ENGINES)
@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://:9200",
        "ftp://host:9200",
        "http://host:0",
        "http://host:port",
        "http://host:9200?pretty",
        "http://host:9200/#hits",
        "http://me:secret@host:9200",
        "http://[::1",
    ],
)
def test_an_address_that_is_none_is_refused(engine: str, url: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of") as caught:
        _create(engine, url)
    assert "secret" not in _story(caught.value)
    assert f"Write {engine}+https://" in caught.value.advice


def test_an_address_may_have_a_path_a_user_or_no_port() -> None:
    for url in ("http://localhost", "https://cluster.cloud.example/words/", "http://me@[::1]:9200"):
        _create("elasticsearch", url).close()


@pytest.mark.parametrize("key", ["schlüssel", "two\nlines", "密钥"])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="characters that no key has") as caught:
        _create("elasticsearch", "http://host", key)
    assert key not in _story(caught.value)


def test_a_password_may_be_bytes_of_the_environment(server: ElasticServer) -> None:
    server.authorization = f"Basic {base64.b64encode(b'loom:p' + bytes([0xE4])).decode()}"
    url = server.url.replace("//", "//loom@")
    assert _create("elasticsearch", url, os.fsdecode(b"p" + bytes([0xE4]))).drop() is None


def test_opensearch_has_no_api_keys() -> None:
    with pytest.raises(ConfigError, match="names no user"):
        _create("opensearch", "http://host", "key")


def _create(engine: str, url: str, secret: str | None = None) -> Any:
    given = None if secret is None else SecretStr(secret)
    index = create("lexical_index", engine, url, secret=given, collection="notes")
    _opened.append(index)
    return index


def _open(server: ElasticServer, *, engine: str = "elasticsearch", secret: str | None = None) -> Any:
    return _create(engine, server.url, secret)


def _filled(server: ElasticServer, texts: list[str] | None = None, *, engine: str = "elasticsearch") -> Any:
    index = _open(server, engine=engine)
    index.create()
    index.add(enumerate(texts or ["a b"] * 20, start=1))
    index.commit()
    return index


def _acts(index: Any) -> list[Callable[[], object]]:
    return [
        lambda: index.search([LexicalQuery(["a"], 5)]),
        lambda: index.add([(1, "a")]),
        lambda: index.delete([1]),
        index.commit,
        index.keys,
        index.count,
    ]


def _story(error: BaseException | None) -> str:
    """Return the texts of an error and its causes, as a log shows them."""
    return "" if error is None else f"{error!r} {error} {_story(error.__cause__ or error.__context__)}"
