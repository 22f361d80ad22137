"""Collections of Milvus that others have filled; with a live server where LOOM_TEST_MILVUS is set."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from pymilvus import DataType, MilvusClient

from loom_core.errors import ConfigError, StoreUnavailableError
from loom_core.knowledge.sources.collections.milvus import write_filter
from loom_core.knowledge.sources.collections.port import Condition
from tests.fixtures.store_servers import StoreServer
from tests.fixtures.store_servers.milvus import PASSWORD, USER, run_milvus, skip_unless_wanted
from tests.unit.knowledge.sources.collections.contract import CollectionContract

FIELDS = {"pk": 5, "title": 21, "year": 5, "rate": 11, "walled": 1, "tags": 22, "more": 23}


@pytest.mark.parametrize(
    ("path", "operator", "values", "written"),
    [
        (("year",), "eq", ("1903", 1903), "(year in [1903])"),
        (("title",), "eq", ("Visby", 'a "b" \\'), '(title in ["Visby", "a \\"b\\" \\\\"])'),
        (("title",), "ne", ("厦门",), '(not (title in ["厦门"]))'),
        (("year",), "eq", ("no number",), "(year in [])"),
        (("rate",), "eq", (1.5, "1.5"), "(rate in [1.5])"),
        (("rate",), "eq", (2, "2"), "(rate in [2])"),
        (("walled",), "eq", (True, "true"), "(walled in [true])"),
        (("tags",), "eq", ("a", "b"), '(array_contains(tags, "a") or array_contains(tags, "b"))'),
        (("year",), "gte", (1903,), "(year >= 1903)"),
        (("title",), "contains", ("is",), '(title like "%is%")'),
        (
            ("more", "lang"),
            "eq",
            ("en", 1),
            '(more["lang"] in [1] or more["lang"] in ["en"] or json_contains(more["lang"], "en") '
            'or json_contains(more["lang"], 1))',
        ),
        (("lang",), "lt", (3,), '($meta["lang"] < 3)'),
    ],
)
def test_conditions_are_expressions(path, operator, values, written) -> None:
    assert write_filter([Condition(path, operator, values)], FIELDS) == written


def test_all_conditions_hold() -> None:
    conditions = [Condition(("year",), "gt", (1,)), Condition(("year",), "lte", (9,))]
    assert write_filter(conditions, FIELDS) == "(year > 1) and (year <= 9)"
    assert not write_filter([], FIELDS)


@pytest.fixture(scope="module")
def server(towns, tmp_path_factory: pytest.TempPathFactory) -> Generator[StoreServer]:
    """A server on which another program has filled collections: with dynamic fields, and with typed ones."""
    skip_unless_wanted()
    with run_milvus(tmp_path_factory.mktemp("milvus")) as running:
        client = MilvusClient(
            f"http://127.0.0.1:{running.port}", user=USER, password=PASSWORD, dedicated=True
        )
        for name, factor, metric, kind in (
            ("guide", 1, "COSINE", "HNSW"),
            ("long", 7, "L2", "IVF_FLAT"),
            ("typed", 1, "COSINE", "HNSW"),
        ):
            schema = client.create_schema(auto_id=False, enable_dynamic_field=name != "typed")
            schema.add_field("number", DataType.INT64, is_primary=True)
            schema.add_field("text", DataType.VARCHAR, max_length=1000)
            schema.add_field("vector", DataType.FLOAT_VECTOR, dim=512)
            if name == "typed":
                for field in ("title", "url", "lang"):
                    schema.add_field(field, DataType.VARCHAR, max_length=1000)
                schema.add_field("year", DataType.INT64)
                schema.add_field("rate", DataType.DOUBLE)
                schema.add_field("walled", DataType.BOOL)
            index = client.prepare_index_params()
            params = {"M": 16, "efConstruction": 100} if kind == "HNSW" else {"nlist": 8}
            index.add_index("vector", index_type=kind, metric_type=metric, params=params)
            client.create_collection(name, schema=schema, index_params=index, consistency_level="Strong")
            rows = [
                {"number": town.number, "text": town.text, "vector": town.vector * factor, **town.metadata}
                for town in towns
            ]
            client.insert(name, rows)
        client.close()
        yield running


@pytest.fixture
def settings(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("GUIDE_PASSWORD", PASSWORD)
    return {"url": f"http://{USER}@127.0.0.1:{server.port}", "secret": "env:GUIDE_PASSWORD"}


class _MilvusContract(CollectionContract):
    engine = "milvus"
    away = "http://127.0.0.1:{port}"

    def field(self, name: str) -> str:
        return name


class TestDynamicFields(_MilvusContract):
    @pytest.fixture
    def config(self, settings) -> dict[str, Any]:
        return {**settings, "collection": "guide"}

    async def test_vectors_that_are_not_of_length_one(self, config) -> None:
        params = {"metric_type": "L2", "params": {"nlist": 8, "nprobe": 8}}
        source = self.open(config, collection="long", index_params=params)
        found = await source.query("Brno is a city in Moravia with two rivers and no harbour.", limit=2)
        assert found[0].metadata["title"] == "Brno"
        assert found[0].relevance == pytest.approx(1.0, abs=1e-3)
        assert 0 < found[1].relevance < 0.9
        source.close()

    async def test_another_metric_is_refused_with_both_names(self, config) -> None:
        source = self.open(config, index_params={"metric_type": "IP"})
        with pytest.raises(ConfigError, match="say IP, but 'guide' is indexed by COSINE"):
            await source.query("wall")
        source.close()

    async def test_a_password_that_is_refused(self, config, monkeypatch) -> None:
        monkeypatch.setenv("GUIDE_PASSWORD", "another one")
        source = self.open(config)
        with pytest.raises(StoreUnavailableError, match="refuses the credentials") as caught:
            await source.query("wall")
        assert "`secret` of the source" in caught.value.advice
        source.close()

    async def test_a_collection_that_is_not_loaded_stays_so(self, server, config) -> None:
        client = MilvusClient(f"http://127.0.0.1:{server.port}", user=USER, password=PASSWORD, dedicated=True)
        client.release_collection("guide")
        source = self.open(config)
        with pytest.raises(StoreUnavailableError, match="not loaded") as caught:
            await source.query("wall")
        assert "load_collection" in caught.value.advice
        client.load_collection("guide")
        client.close()
        assert await source.query("wall")
        source.close()


class TestTypedFields(_MilvusContract):
    @pytest.fixture
    def config(self, settings) -> dict[str, Any]:
        return {**settings, "collection": "typed"}
