"""Indexes of Elasticsearch and OpenSearch that others have filled, with a strict server.

Where the vendors' clients are installed, they fill the indexes: of Elasticsearch by the store that LangChain
and LlamaIndex use.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Generator
from secrets import token_hex
from typing import Any, ClassVar

import anyio
import pytest
from pydantic import SecretStr

from loom_core.errors import ConfigError, InvalidInputError, LoomError, SourceError, StoreUnavailableError
from loom_core.knowledge import CollectionConfig, CollectionSource
from loom_core.knowledge.indexes.engines.elasticsearch import (
    ELASTICSEARCH,
    OPENSEARCH,
    SearchEngineConnection,
    SearchProduct,
)
from loom_core.knowledge.indexes.engines.servers import ServerUse
from loom_core.plugins import PluginRegistry, create
from tests.fixtures.store_servers import store_program
from tests.fixtures.store_servers.elastic_index import ElasticError, Index
from tests.fixtures.store_servers.elasticsearch import ElasticServer
from tests.unit.knowledge.sources.collections.contract import CollectionContract

_KEY = "cmVhZGVyOm9mLW5vLXZhbHVl"
_PASSWORD = "pässword of no value"
_BASIC = f"Basic {base64.b64encode(f'reader:{_PASSWORD}'.encode()).decode()}"
_DENSE = {"type": "dense_vector", "dims": 512, "index": True, "similarity": "cosine"}
_VECTORS = {"dense_vector", "knn_vector"}
BRNO = "Brno is a city in Moravia with two rivers and no harbour."

_BY_THE_VENDOR = """
import json, sys

engine, url, layout, path = sys.argv[1:]
entries = json.load(open(path, encoding="utf-8"))
if engine == "elasticsearch":
    from elasticsearch import Elasticsearch
    from elasticsearch.helpers.vectorstore import DenseVectorStrategy, VectorStore

    text, vector = {"langchain": ("text", "vector"), "llamaindex": ("content", "embedding")}[layout]
    named = ("document_id", "doc_id", "ref_doc_id") if layout == "llamaindex" else ()
    store = VectorStore(
        Elasticsearch(url),
        index=layout,
        retrieval_strategy=DenseVectorStrategy(),
        num_dimensions=512,
        text_field=text,
        vector_field=vector,
        metadata_mappings={name: {"type": "keyword"} for name in named},
    )
    store.add_texts(
        [entry["text"] for entry in entries],
        metadatas=[entry["metadata"] for entry in entries],
        vectors=[entry["vector"] for entry in entries],
        ids=[entry["id"] for entry in entries],
    )
else:
    from opensearchpy import OpenSearch, helpers

    text, vector = {"langchain": ("text", "vector_field"), "llamaindex": ("content", "embedding")}[layout]
    space, method = {"langchain": ("l2", "nmslib"), "llamaindex": ("cosinesimil", "faiss")}[layout]
    client = OpenSearch(url)
    options = {"name": "hnsw", "space_type": space, "engine": method, "parameters": {"m": 16}}
    field = {"type": "knn_vector", "dimension": 512, "method": options}
    settings = {"index": {"knn": True, "knn.algo_param.ef_search": 100}}
    client.indices.create(
        index=layout, body={"settings": settings, "mappings": {"properties": {vector: field}}}
    )
    helpers.bulk(
        client,
        [
            {
                "_op_type": "index",
                "_index": layout,
                "_id": entry["id"],
                text: entry["text"],
                vector: entry["vector"],
                "metadata": entry["metadata"],
            }
            for entry in entries
        ],
    )
    client.indices.refresh(index=layout)
"""


def hold(server: ElasticServer, name: str, entries: list[dict[str, Any]], **fields: Any) -> Index:
    """Fill an index as another program does, with mappings of some fields; others are mapped dynamically."""
    is_knn = any(options.get("type") == "knn_vector" for options in fields.values())
    server.indexes[name] = index = Index(name, {"knn": True} if is_knn else {}, {"properties": fields}, set())
    for number, entry in enumerate(entries, start=1):
        index.write(f"p{number}", entry)
    index.refresh()
    return index


def entries(towns: Any, *, vector: str, text: str = "text", factor: float = 1.0) -> list[dict[str, Any]]:
    return [
        {text: town.text, "metadata": {**town.metadata}, vector: (town.vector * factor).tolist()}
        for town in towns
    ]


def knn_field(engine: str = "", space: str = "", **options: Any) -> dict[str, Any]:
    method = {"name": "hnsw", "engine": engine, "space_type": space or "l2"} if engine else None
    return {"type": "knn_vector", "dimension": 512, **({"method": method} if method else {}), **options}


@pytest.fixture(scope="module")
def elastic(towns) -> Generator[ElasticServer]:
    """A server with an index `guide` as LangChain makes it; its reader has an API key, and may not write."""
    server = ElasticServer(authorization="ApiKey another")
    server.reader = f"ApiKey {_KEY}"
    hold(server, "guide", entries(towns, vector="vector"), vector=_DENSE)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def opensearch(towns) -> Generator[ElasticServer]:
    """The same in OpenSearch, as LangChain makes it; the reader has a password."""
    server = ElasticServer("opensearch", authorization="Basic another")
    server.reader = _BASIC
    hold(
        server,
        "guide",
        entries(towns, vector="vector_field"),
        vector_field=knn_field("faiss", "cosinesimil"),
    )
    server.start()
    yield server
    server.kill()


class _SearchEngineContract(CollectionContract):
    @pytest.fixture
    def server(self, config) -> ElasticServer:
        raise NotImplementedError

    async def test_only_reading_requests_are_made(self, server, config) -> None:
        source = self.open(config)
        server.asked.clear()
        first = await source.query("port on the Trave", limit=2, filters={"lang": "en"})
        await create("retriever", "hybrid", [source]).retrieve("marzipan")
        await source.get_by_id(first[0].id)
        await source.passages(limit=3)
        await source.describe()
        asked = {(each.method, each.path) for each in server.asked}
        assert asked <= {
            ("GET", "/"), ("GET", "/guide/_mapping"), ("GET", "/guide/_count"), ("POST", "/guide/_search")
        }  # fmt: skip
        source.close()

    async def test_words_are_searched_by_the_engine(self, server, config) -> None:
        source = self.open(config)
        assert set(source.channels) == {"dense", "bm25"}
        await source.describe()
        server.asked.clear()
        found = await create("retriever", "llama_bm25", [source]).retrieve(
            "rivers of Moravia", top_k=2, filters={"lang": "en"}
        )
        assert found[0]["metadata"]["title"] == "Brno"
        assert found[0]["metadata"]["scores"]["bm25"] > 1.0
        [asked] = server.asked
        assert asked.body["query"]["bool"]["must"] == [{"match": {"text": {"query": "rivers of Moravia"}}}]
        assert asked.body["query"]["bool"]["filter"] == [{"terms": {"metadata.lang.keyword": ["en"]}}]
        chinese = await source.ask("bm25", "鼓浪屿", limit=1)
        assert chinese[0].metadata["title"] == "厦门"
        source.close()

    async def test_words_and_vectors_are_fused(self, config) -> None:
        source = self.open(config)
        found = await create("retriever", "llama_hybrid", [source]).retrieve("Moravia with two rivers")
        assert found[0]["metadata"]["title"] == "Brno"
        assert found[0]["metadata"]["scores"].keys() >= {"dense", "bm25"}
        source.close()

    async def test_filters_are_those_of_the_mapping(self, server, config, towns) -> None:
        rows = entries(towns[:60], vector="v")
        del rows[0]["metadata"]["title"]
        rows[-1]["metadata"]["rare"] = 7  # in no sample
        fields = {**server.indexes["guide"].mappings["properties"]}
        [vector] = [each for each in fields.values() if each.get("type") in _VECTORS]
        prose = {"type": "text"}
        hold(
            server, "mapped", rows, v=vector, metadata={"properties": {"note": prose}}, when={"type": "date"}
        )
        source = self.open(config, collection="mapped")
        report = await source.describe()
        assert {"rare", "when", "title", "year", "walled"} <= set(report.filters)
        assert "note" not in report.filters
        assert report.passages == 60
        found = await source.query("wall", limit=3, filters={"rare": 7})
        assert [item.metadata["rare"] for item in found] == [7]
        source.close()

    async def test_text_without_a_keyword_is_no_filter(self, server, config, towns) -> None:
        rows = [{**row, "note": "Old town, new port"} for row in entries(towns[:4], vector="v")]
        fields = server.indexes["guide"].mappings["properties"]
        [vector] = [each for each in fields.values() if each.get("type") in _VECTORS]
        hold(server, "prose", rows, v=vector, note={"type": "text"}, flat={"type": "flattened"})
        source = self.open(config, collection="prose", filters={"note": "note", "no": "metadata.no"})
        assert len(await source.query("wall", filters={"note": {"contains": "new port"}})) == 4
        assert await source.query("wall", filters={"note": {"contains": "port new"}}) == []
        with pytest.raises(InvalidInputError, match=r"'eq' on the field 'note' .* of type text") as caught:
            await source.query("wall", filters={"note": "Old town"})
        assert "multi-field" in caught.value.advice
        with pytest.raises(InvalidInputError, match=r"'metadata\.no' .* not in its mapping"):
            await source.query("wall", filters={"no": "x"})
        source.close()

    @pytest.mark.parametrize(
        ("filters", "titles"),
        [
            ({"title": {"contains": "nd"}}, set()),
            ({"title": {"contains": "isb"}}, {"Visby"}),
            ({"title": {"contains": "*"}}, set()),
            ({"title": {"gte": "Visby"}}, {"Visby", "厦门"}),
            ({"lang": 7}, set()),
            ({"year": "many"}, set()),
        ],
    )
    async def test_more_filters(self, config, filters, titles) -> None:
        source = self.open(config)
        found = await source.query("wall", limit=20, filters=filters)
        assert {item.metadata["title"] for item in found} == titles
        source.close()

    async def test_numbers_are_compared_with_numbers(self, config) -> None:
        source = self.open(config)
        with pytest.raises(InvalidInputError, match=r"'gte' on the field 'metadata.year' .*of type long"):
            await source.query("wall", filters={"year": {"gte": "many"}})
        with pytest.raises(InvalidInputError, match=r"'contains' on the field 'metadata\.year'"):
            await source.query("wall", filters={"year": {"contains": "19"}})
        source.close()

    async def test_a_body_restricts_every_search_besides_filters(self, config) -> None:
        body = {"query": {"range": {"metadata.year": {"lt": 1905}}}}
        source = self.open(config, body=body)
        assert {item.metadata["year"] for item in await source.query("wall", limit=50)} == {
            1901, 1902, 1903, 1904
        }  # fmt: skip
        assert len(await source.query("wall", filters={"lang": "zh"})) == 1
        assert await source.query("wall", filters={"title": "Town 100"}) == []
        assert len(await source.passages(limit=50)) == 4
        assert await source.ask("bm25", "shop100", limit=5) == []
        assert (await source.get_by_id("p4")) is not None
        assert await source.get_by_id("p100") is None
        source.close()

    async def test_a_body_that_the_engine_refuses(self, config) -> None:
        source = self.open(config, body={"query": {"no_such_query": {}}})
        with pytest.raises(SourceError, match=r"refuses the search in 'guide': unknown query") as caught:
            await source.query("wall")
        assert "`body`" in caught.value.advice
        source.close()

    async def test_a_question_with_too_many_words(self, config) -> None:
        source = self.open(config)
        with pytest.raises(InvalidInputError, match="too many words"):
            await source.ask("bm25", "port " * 2000, limit=5)
        source.close()

    async def test_an_index_without_vectors_is_searched_by_words(self, server, config, towns) -> None:
        hold(server, "words", [{"text": town.text, **town.metadata} for town in towns[:9]])
        source = self.open(config, collection="words", embedding="")
        [found] = await source.query("marzipan")
        assert found.metadata["title"] == "Lübeck"
        report = await source.describe()
        assert (report.metric, report.dimension, report.passages) == ("none", 0, 9)
        with pytest.raises(SourceError, match="has 0 vectors"):
            await create("retriever", "dense", [source], embedding_config="hashing").retrieve("marzipan")
        source.close()
        source = self.open(config, collection="words")
        with pytest.raises(SourceError, match="has 0 vectors") as caught:
            await source.query("marzipan")
        assert "Choose" in caught.value.advice
        source.close()

    async def test_a_text_that_has_no_words(self, server, config, towns) -> None:
        rows = [{"body": town.text, "abstract": town.text} for town in towns[:4]]
        hold(server, "exact", rows, body={"type": "keyword"}, abstract={"type": "text"})
        source = self.open(config, collection="exact", embedding="", fields={"text": "body"})
        with pytest.raises(SourceError, match="field of type text, and 'body' is not") as caught:
            await source.query("marzipan")
        assert "one of: abstract" in caught.value.advice
        source.close()

    async def test_an_alias_of_several_indexes(self, server, config, towns) -> None:
        fields = server.indexes["guide"].mappings["properties"]
        [vector] = [each for each in fields.values() if each.get("type") in _VECTORS]
        for number in (0, 1):
            part = entries(towns[number:8:2], vector="v")
            index = hold(server, f"part-{number}", part, v=vector)
            index.aliases.add("parts")
        source = self.open(config, collection="parts")
        assert (await source.query(BRNO, limit=1))[0].metadata["title"] == "Brno"
        assert (await source.describe()).passages == 8
        source.close()
        del server.indexes["part-0"], server.indexes["part-1"]

    async def test_an_empty_index_has_no_passages(self, server, config) -> None:
        fields = server.indexes["guide"].mappings["properties"]
        hold(server, "empty", [], **{k: v for k, v in fields.items() if k.startswith("vector")})
        source = self.open(config, collection="empty")
        assert await source.query("wall") == []
        source.close()

    async def test_it_answers_again_once_the_server_is_back(self, server, config) -> None:
        source = self.open(config)
        await source.query("wall")
        server.kill()
        with pytest.raises(StoreUnavailableError, match="there is no connection"):
            await source.query("wall")
        server.start()
        assert await source.query("wall")
        source.close()

    async def test_an_index_that_goes_away_is_looked_up_again(self, server, config, towns) -> None:
        fields = server.indexes["guide"].mappings["properties"]
        kept = {name: options for name, options in fields.items() if name.startswith("vector")}
        [name] = kept
        hold(server, "brief", entries(towns[:4], vector=name), **kept)
        source = self.open(config, collection="brief")
        await source.query("wall")
        server.lose("brief")
        with pytest.raises(SourceError, match=r"no such index \[brief\]") as caught:
            await source.query("wall")
        assert caught.value.advice == "Check `collection` and `fields` of the source."
        hold(server, "brief", entries(towns[:2], vector=name), **kept)
        assert len(await source.query("wall")) == 2
        source.close()

    async def test_half_an_answer_is_none(self, server, config) -> None:
        source = self.open(config)
        await source.query("wall")
        cause = ("no_shard_available_action_exception", "[guide][0]")
        server.refusals = [
            ElasticError(503, "search_phase_execution_exception", "all shards failed", cause=cause)
        ]
        with pytest.raises(StoreUnavailableError, match=r"status 503: \[guide\]"):
            await source.query("wall")
        source.close()

    async def test_one_of_several_vectors_has_to_be_named(self, server, config, towns) -> None:
        fields = server.indexes["guide"].mappings["properties"]
        [vector] = [each for each in fields.values() if each.get("type") in _VECTORS]
        rows = [{**row, "image": [1.0] * 512} for row in entries(towns[:4], vector="words")]
        hold(server, "several", rows, words={**vector}, image={**vector})
        source = self.open(config, collection="several")
        with pytest.raises(SourceError, match="has 2 vectors") as caught:
            await source.query("wall")
        assert "words, image" in caught.value.advice
        source.close()
        source = self.open(config, collection="several", fields={"vector": "words"})
        [found] = await source.query("marzipan port", limit=1)
        assert found.metadata.keys().isdisjoint({"words", "image"})
        source.close()

    async def test_another_product_is_named(self) -> None:
        server = ElasticServer(self.engine)
        server.start()
        config = CollectionConfig(url=server.url, collection="guide", embedding="hashing")
        other = "opensearch" if self.engine == "elasticsearch" else "elasticsearch"
        source = CollectionSource(other, config, name="guide")
        with pytest.raises(StoreUnavailableError, match=r"it is (OpenSearch|Elasticsearch)") as caught:
            await source.query("wall")
        assert caught.value.advice == f"Its kind is {self.engine}."
        source.close()
        server.kill()

    async def test_secrets_are_in_no_message_and_no_log(
        self, config, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        caplog.set_level(logging.DEBUG)
        monkeypatch.setenv("GUIDE_SECRET", "sesame-of-no-value")
        source = self.open(config)
        with pytest.raises(StoreUnavailableError, match="refuses the credentials") as caught:
            await source.query("wall")
        assert "`secret` of the source, as env:NAME or keyring:NAME" in caught.value.advice
        assert "It must be allowed to read the index." in caught.value.advice
        encoded = base64.b64encode(b"reader:sesame-of-no-value").decode()
        for told in (f"{caught.value!r} {caught.value.advice}", caplog.text, repr(source.config)):
            assert "sesame" not in told
            assert encoded not in told
        source.close()

    @pytest.mark.parametrize("layout", ["langchain", "llamaindex"])
    async def test_what_the_vendors_client_has_filled(self, layout, towns, tmp_path) -> None:
        server = ElasticServer(self.engine)
        server.start()
        filled = [
            {
                "id": f"node-{town.number}",
                "text": town.text,
                "vector": town.vector.tolist(),
                "metadata": {
                    **town.metadata,
                    **(
                        {
                            "_node_content": json.dumps({"id_": f"node-{town.number}", "text": ""}),
                            "_node_type": "TextNode",
                            "document_id": "d1",
                            "doc_id": "d1",
                            "ref_doc_id": "d1",
                        }
                        if layout == "llamaindex"
                        else {}
                    ),
                },
            }
            for town in towns[:60]
        ]
        path = tmp_path / "entries.json"
        path.write_text(json.dumps(filled), encoding="utf-8")
        program = [store_program("python"), "-c", _BY_THE_VENDOR, self.engine, server.url, layout, str(path)]
        await anyio.run_process(program)
        source = self.open({"url": server.url, "collection": layout})
        found = await source.query(BRNO, limit=3, filters={"lang": "en"})
        assert (found[0].id, found[0].content, found[0].source) == ("node-4", BRNO, "https://guide.example/4")
        assert found[0].relevance == pytest.approx(1.0, abs=1e-3)
        assert found[0].metadata.keys().isdisjoint({"_node_content", "doc_id"})
        words = await source.ask("bm25", "Moravia", limit=3)
        assert [item.id for item in words] == ["node-4"]
        assert {"lang", "rate", "title", "url", "walled", "year"} <= set(source.supported_filters)
        assert ("document_id" in source.supported_filters) == (layout == "llamaindex")
        source.close()
        server.kill()


class TestElasticsearch(_SearchEngineContract):
    engine = "elasticsearch"
    away = "http://127.0.0.1:{port}"

    @pytest.fixture
    def server(self, elastic) -> ElasticServer:
        return elastic

    @pytest.fixture
    def config(self, elastic, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        monkeypatch.setenv("GUIDE_SECRET", _KEY)
        return {"url": elastic.url, "collection": "guide", "secret": "env:GUIDE_SECRET"}

    @pytest.mark.parametrize("similarity", ["l2_norm", "max_inner_product"])
    async def test_vectors_that_are_not_of_length_one(self, elastic, config, towns, similarity) -> None:
        options = {**_DENSE, "similarity": similarity}
        hold(elastic, "long", entries(towns, vector="vector", factor=7), vector=options)
        source = self.open(config, collection="long")
        found = await source.query(BRNO, limit=2)
        assert found[0].metadata["title"] == "Brno"
        assert found[0].relevance == pytest.approx(1.0, abs=1e-3)
        assert -0.5 < found[1].relevance < 0.9
        source.close()

    async def test_vectors_of_length_one_by_their_inner_product(self, elastic, config, towns) -> None:
        options = {**_DENSE, "similarity": "dot_product"}
        hold(elastic, "unit", entries(towns, vector="vector"), vector=options)
        source = self.open(config, collection="unit")
        assert (await source.query(BRNO, limit=1))[0].relevance == pytest.approx(1.0, abs=1e-3)
        source.close()

    async def test_a_dimension_that_no_mapping_has(self, elastic, config, towns) -> None:
        elastic.version = "8.19.0"  # whose sources have vectors
        hold(elastic, "learned", entries(towns[:4], vector="v"), v={"type": "dense_vector"})
        source = self.open(config, collection="learned")
        assert (await source.describe()).dimension == 512
        found = await source.query("wall", limit=1)
        assert "v" not in found[0].metadata
        elastic.version = "9.5.1"
        source.close()

    async def test_vectors_that_are_not_indexed_or_not_floats(self, elastic, config, towns) -> None:
        rows = entries(towns[:4], vector="v")
        hold(elastic, "stored", rows, v={"type": "dense_vector", "dims": 512, "index": False})
        source = self.open(config, collection="stored")
        with pytest.raises(SourceError, match="'v' of 'stored' are stored, but not indexed") as caught:
            await source.query("wall")
        assert '"index": true' in caught.value.advice
        source.close()
        hold(elastic, "bytes", rows, v={**_DENSE, "element_type": "byte"})
        source = self.open(config, collection="bytes")
        with pytest.raises(SourceError, match="has 0 vectors"):
            await source.query("wall")
        source.close()

    async def test_options_of_a_search_by_vectors_are_handed_through(self, elastic, config) -> None:
        source = self.open(config, body={"knn": {"num_candidates": 777, "rescore_vector": {"oversample": 3}}})
        elastic.asked.clear()
        await source.query("wall", limit=2)
        asked = elastic.asked[-1].body["knn"]
        assert (asked["k"], asked["num_candidates"], asked["rescore_vector"]) == (2, 777, {"oversample": 3})
        source.close()

    async def test_flattened_metadata_is_filtered_too(self, elastic, config, towns) -> None:
        rows = entries(towns[:8], vector="vector")
        hold(elastic, "flat", rows, vector=_DENSE, metadata={"type": "flattened"})
        source = self.open(config, collection="flat")
        found = await source.query("wall", filters={"lang": "zh", "year": 1903})
        assert [item.metadata["title"] for item in found] == ["厦门"]
        source.close()

    async def test_a_date_of_which_a_part_is_given(self, elastic, config, towns) -> None:
        rows = [
            {**row, "day": f"2024-05-{number:02}"}
            for number, row in enumerate(entries(towns[:4], vector="vector"), start=1)
        ]
        hold(elastic, "dated", rows, vector=_DENSE)
        source = self.open(config, collection="dated")
        assert len(await source.query("wall", filters={"day": "2024-05-02"})) == 1
        assert len(await source.query("wall", filters={"day": {"gt": "2024-05-02"}})) == 2
        with pytest.raises(SourceError, match="failed to parse date field"):
            await source.query("wall", filters={"day": "soon"})
        source.close()

    async def test_a_version_without_the_option_knn(self, elastic, config) -> None:
        elastic.version = "8.3.3"
        source = self.open(config)
        with pytest.raises(StoreUnavailableError, match=r"of version 8\.3\.3") as caught:
            await source.query("wall")
        assert caught.value.advice == "Elasticsearch must be 8.4 or later."
        elastic.version = "9.5.1"
        source.close()


class TestOpenSearch(_SearchEngineContract):
    engine = "opensearch"
    away = "http://reader@127.0.0.1:{port}"

    @pytest.fixture
    def server(self, opensearch) -> ElasticServer:
        return opensearch

    @pytest.fixture
    def config(self, opensearch, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        monkeypatch.setenv("GUIDE_SECRET", _PASSWORD)
        url = opensearch.url.replace("//", "//reader@")
        return {"url": url, "collection": "guide", "secret": "env:GUIDE_SECRET"}

    @pytest.mark.parametrize(
        ("engine", "space", "factor"),
        [
            ("lucene", "cosinesimil", 1),
            ("lucene", "l2", 7),
            ("faiss", "innerproduct", 7),
            ("nmslib", "cosinesimil", 7),
            ("nmslib", "l2", 1),
            ("", "", 7),
        ],
    )
    async def test_every_engine_and_space(self, opensearch, config, towns, engine, space, factor) -> None:
        rows = entries(towns, vector="v", factor=factor)
        hold(opensearch, "spaces", rows, v=knn_field(engine, space))
        source = self.open(config, collection="spaces")
        found = await source.query(BRNO, limit=2)
        assert found[0].metadata["title"] == "Brno"
        assert found[0].relevance == pytest.approx(1.0, abs=1e-3)
        assert found[1].relevance < 0.9
        assert len(await source.query("厦门", limit=6, filters={"walled": True})) == 6
        source.close()

    async def test_a_space_without_a_cosine_keeps_its_order(self, opensearch, config, towns) -> None:
        hold(opensearch, "city", entries(towns, vector="v"), v=knn_field("lucene", "l1"))
        source = self.open(config, collection="city")
        found = await source.query(BRNO, limit=3)
        assert found[0].metadata["title"] == "Brno"
        assert found[0].relevance >= found[1].relevance >= found[2].relevance
        source.close()

    async def test_options_of_a_search_by_vectors_are_handed_through(self, opensearch, config) -> None:
        options = {"method_parameters": {"ef_search": 300}}
        source = self.open(config, body={"knn": options})
        await source.query("wall", limit=2)
        asked = opensearch.asked[-1].body
        assert asked["size"] == 2
        assert asked["query"]["knn"]["vector_field"]["method_parameters"] == {"ef_search": 300}
        source.close()

    async def test_a_version_without_filters_of_vectors(self, opensearch, config) -> None:
        opensearch.version = "2.8.0"
        source = self.open(config)
        with pytest.raises(StoreUnavailableError, match=r"of version 2\.8\.0") as caught:
            await source.query("wall")
        assert caught.value.advice == "OpenSearch must be 2.9 or later."
        opensearch.version = "3.2.0"
        source.close()


class _RealContract(CollectionContract):
    """Against a server that runs already; see docs/development.md."""

    product: ClassVar[SearchProduct]
    vector: ClassVar[dict[str, Any]]
    settings: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(scope="class")
    @classmethod
    def filled(cls, towns) -> Generator[dict[str, Any]]:
        name = cls.engine.upper()
        url = os.environ.get(f"LOOM_TEST_{name}_URL")
        if url is None:
            pytest.skip(f"LOOM_TEST_{name}_URL names no server, such as http://localhost:9200.")
        given = os.environ.get(f"LOOM_TEST_{name}_SECRET")
        secret, use = given and SecretStr(given), ServerUse("", is_index=True)
        server = SearchEngineConnection(cls.product, url, secret=secret or None, index="guide", use=use)
        index = f"loom_contract_{token_hex(8)}"
        body = {"settings": cls.settings, "mappings": {"properties": {"vector": cls.vector}}}
        server.ask("PUT", f"/{index}", json.dumps(body).encode())
        lines = [
            json.dumps(line)
            for town, entry in zip(towns, entries(towns, vector="vector"), strict=True)
            for line in ({"index": {"_id": f"p{town.number}"}}, entry)
        ]
        written = server.ask("POST", f"/{index}/_bulk", ("\n".join(lines) + "\n").encode())
        assert not written["errors"]
        server.ask("POST", f"/{index}/_refresh")
        reference = f"env:LOOM_TEST_{name}_SECRET" if secret else ""
        yield {"url": url, "collection": index, "secret": reference}
        server.ask("DELETE", f"/{index}")
        server.close()

    @pytest.fixture
    def config(self, filled) -> dict[str, Any]:
        return filled


class TestRealElasticsearch(_RealContract):
    engine = "elasticsearch"
    away = "http://127.0.0.1:{port}"
    product = ELASTICSEARCH
    vector = _DENSE


class TestRealOpenSearch(_RealContract):
    engine = "opensearch"
    away = "http://reader@127.0.0.1:{port}"
    product = OPENSEARCH
    vector = knn_field("lucene", "cosinesimil")
    settings: ClassVar[dict[str, Any]] = {"index": {"knn": True}}


async def test_the_store_type_es_is_elasticsearch(elastic, monkeypatch) -> None:
    monkeypatch.setenv("GUIDE_SECRET", _KEY)
    params = {"url": elastic.url, "collection": "guide", "secret": "env:GUIDE_SECRET"}
    body = {"query": {"term": {"metadata.lang.keyword": {"value": "zh"}}}}
    make = PluginRegistry().get("retriever", "llama_dense")
    retriever = make(
        top_k=3, store_type="es", store_params={**params, "body": body}, embedding_config="hashing"
    )
    found = await retriever.retrieve("harbour")
    assert [each["metadata"]["title"] for each in found] == ["厦门"]
    retriever.close()
    source = CollectionSource(
        "elasticsearch", CollectionConfig.model_validate({**params, "embedding": "hashing"}), name="guide"
    )
    changed = create("retriever", "llama_dense", [source], store_type="es", store_params={"body": body})
    assert len(await changed.retrieve("harbour", top_k=5)) == 1
    changed.close()  # type: ignore[attr-defined]
    source.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"body": {"mappings": {}}}, "body.mappings"),
        ({"body": {"query": [1]}}, "body.query"),
        ({"body": {"knn": {"filter": []}}}, "'filter' is not an option here"),
        ({"body": {"knn": {"similarity": 0.5}}}, "'similarity' is not an option here"),
        ({"url": "redis://host"}, "is not the address of Elasticsearch"),
    ],
)
def test_what_cannot_be_used_is_refused(changes, message) -> None:
    params = {"url": "http://localhost:9200", "collection": "guide", **changes}
    with pytest.raises(LoomError, match=message):
        create("retriever", "llama_dense", store_type="es", store_params=params)


def test_a_body_is_for_search_engines() -> None:
    config = CollectionConfig.model_validate(
        {"url": "http://localhost:6333", "collection": "guide", "body": {"query": {"match_all": {}}}}
    )
    with pytest.raises(ConfigError, match="`body` is for Elasticsearch and OpenSearch"):
        CollectionSource("qdrant", config, name="guide")
