"""Tables of PostgreSQL that others have filled: those of LangChain and LlamaIndex, and plain columns."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import psycopg
import pytest

from loom_core.errors import ConfigError, InvalidInputError, SourceError, StoreUnavailableError
from tests.fixtures.store_servers.postgres import PASSWORD, PostgresServer, run_postgres
from tests.unit.knowledge.sources.collections.contract import CollectionContract

# As langchain-postgres 0.0.19 (PGVector) and llama-index-vector-stores-postgres 0.9.0 make them.
_LANGCHAIN = """
    CREATE TABLE langchain_pg_collection (uuid uuid PRIMARY KEY, name varchar UNIQUE, cmetadata json);
    CREATE TABLE langchain_pg_embedding (
        id varchar PRIMARY KEY, collection_id uuid REFERENCES langchain_pg_collection, embedding vector,
        document varchar, cmetadata jsonb);
    CREATE INDEX ON langchain_pg_embedding USING gin (cmetadata jsonb_path_ops);
    INSERT INTO langchain_pg_collection VALUES
        (gen_random_uuid(), 'guide', 'null'), (gen_random_uuid(), 'other', 'null');
    INSERT INTO langchain_pg_embedding
        SELECT gen_random_uuid(), uuid, '[1,2,3]', 'not of this collection', '{}' FROM langchain_pg_collection
        WHERE name = 'other'"""
_LLAMA_INDEX = """
    CREATE TABLE data_notes (
        id bigserial PRIMARY KEY, text varchar NOT NULL, metadata_ jsonb, node_id varchar,
        embedding vector(512))"""
_COLUMNS = """
    CREATE SCHEMA plain;
    CREATE TABLE plain.towns (
        number int PRIMARY KEY, body text, title text, url text, lang text, year int, rate float, walled bool,
        tags text[], added date, embedding halfvec(512));
    CREATE VIEW plain.view AS SELECT number AS n, body AS text, embedding FROM plain.towns"""


@pytest.fixture(scope="module")
def server(towns) -> Generator[PostgresServer]:
    """A server on which others have filled tables; the role `reader` may read them."""
    with run_postgres() as running, connect(running) as connection:
        connection.execute("CREATE EXTENSION vector")
        for statement in (_LANGCHAIN, _LLAMA_INDEX, _COLUMNS):
            connection.execute(statement)
        for town in towns:
            vector = str(town.vector.tolist())
            connection.execute(
                "INSERT INTO langchain_pg_embedding SELECT gen_random_uuid(), uuid, %s, %s, %s "
                "FROM langchain_pg_collection WHERE name = 'guide'",
                [vector, town.text, json.dumps(town.metadata)],
            )
            node = {**town.metadata, "_node_content": json.dumps({"text": ""}), "doc_id": f"d{town.number}"}
            connection.execute(
                "INSERT INTO data_notes (text, metadata_, node_id, embedding) VALUES (%s, %s, %s, %s)",
                [town.text, json.dumps(node), f"n{town.number}", vector],
            )
            connection.execute(
                "INSERT INTO plain.towns VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                [
                    town.number,
                    town.text,
                    *town.metadata.values(),
                    ["every", f"t{town.number % 3}"],
                    f"2024-01-{town.number % 28 + 1:02}",
                    vector,
                ],
            )
        connection.execute(
            f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'; GRANT USAGE ON SCHEMA plain TO reader; "
            "GRANT SELECT ON ALL TABLES IN SCHEMA public, plain TO reader"
        )
        yield running


def connect(server: PostgresServer) -> psycopg.Connection:
    return psycopg.connect(
        host="127.0.0.1",
        port=server.port,
        user="loom",
        password=PASSWORD,
        dbname="postgres",
        autocommit=True,
    )


@pytest.fixture
def settings(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("GUIDE_PASSWORD", PASSWORD)
    url = f"postgresql://reader@127.0.0.1:{server.port}/postgres"
    return {"url": url, "secret": "env:GUIDE_PASSWORD"}


class TestLangChain(CollectionContract):
    engine = "pgvector"
    away = "postgresql://reader@127.0.0.1:{port}/postgres"

    @pytest.fixture
    def config(self, settings) -> dict[str, Any]:
        return {**settings, "collection": "guide"}

    def field(self, name: str) -> str:
        return f"cmetadata.{name}"

    async def test_a_password_that_is_refused(self, config, monkeypatch) -> None:
        monkeypatch.setenv("GUIDE_PASSWORD", "another one")
        source = self.open(config)
        with pytest.raises(StoreUnavailableError, match="password authentication failed") as caught:
            await source.query("wall")
        assert "`secret` of the source" in caught.value.advice
        assert "another one" not in str(caught.value)
        source.close()

    def test_an_address_of_something_else(self, config) -> None:
        with pytest.raises(ConfigError, match="not the address of a PostgreSQL") as caught:
            self.open(config, url="http://127.0.0.1:5432")
        assert "pgvector+" not in caught.value.advice

    async def test_values_are_never_sql(self, config) -> None:
        source = self.open(config)
        for value in ("100%", "%s", "'; DROP TABLE data_notes; --", '"', "\\", "{}"):
            for given in (value, {"ne": value}, {"contains": value}, {"gte": value}):
                found = await source.query("wall", limit=1, filters={"title": given})
                assert len(found) <= 1
        source.close()


class TestLlamaIndex(CollectionContract):
    engine = "pgvector"
    away = "postgresql://reader@127.0.0.1:{port}/postgres"

    @pytest.fixture
    def config(self, settings) -> dict[str, Any]:
        return {**settings, "collection": "notes"}

    def field(self, name: str) -> str:
        return f"metadata_.{name}"


class TestColumns(CollectionContract):
    engine = "pgvector"
    away = "postgresql://reader@127.0.0.1:{port}/postgres"

    @pytest.fixture
    def config(self, settings) -> dict[str, Any]:
        return {**settings, "collection": "plain.towns"}

    def field(self, name: str) -> str:
        return name

    async def test_lists_and_dates_are_filters(self, config) -> None:
        source = self.open(config)
        assert len(await source.query("town", limit=300, filters={"tags": "t1"})) == 100
        late = {"added": {"gte": "2024-01-28"}, "tags": "every"}
        found = await source.query("town", limit=300, filters=late)
        assert {item.metadata["added"] for item in found} == {"2024-01-28"}
        with pytest.raises(InvalidInputError, match="no order"):
            await source.query("town", filters={"walled": {"gt": True}})
        source.close()

    async def test_an_approximate_index_gives_as_many_as_are_asked_for(self, server, config) -> None:
        with connect(server) as connection:
            for metric in ("cosine", "l2", "ip"):
                connection.execute(
                    f"CREATE INDEX approximate ON plain.towns USING hnsw (embedding halfvec_{metric}_ops)"
                )
                source = self.open(config)
                for filters, count in (({"walled": True}, 6), ({"year": {"gte": 2100}}, 40), (None, 40)):
                    found = await source.query("a market in town 250", limit=40, filters=filters)
                    assert len(found) == count, metric
                    relevances = [item.relevance for item in found]
                    assert relevances == sorted(relevances, reverse=True)
                [first] = await source.query("Brno is a city in Moravia with two rivers and no harbour.", 1)
                assert first.relevance == pytest.approx(1.0, abs=5e-3)
                source.close()
                connection.execute("DROP INDEX plain.approximate")

    async def test_a_view_needs_the_name_of_its_ids(self, config) -> None:
        source = self.open(config, collection="plain.view")
        with pytest.raises(SourceError, match="no primary key") as caught:
            await source.query("wall")
        assert "There are: n, text, embedding." in caught.value.advice
        source.close()
        source = self.open(config, collection="view", url=f"{config['url']}?schema=plain", fields={"id": "n"})
        assert (await source.query("Brno in Moravia", limit=1))[0].id == "4"
        source.close()

    async def test_a_table_that_the_role_may_not_read(self, server, config) -> None:
        with connect(server) as connection:
            connection.execute("CREATE TABLE plain.secret (id int PRIMARY KEY, text text, v vector(512))")
        source = self.open(config, collection="plain.secret")
        with pytest.raises(StoreUnavailableError, match="permission denied") as caught:
            await source.query("wall")
        assert caught.value.advice == "Let an administrator grant it SELECT on the table."
        source.close()

    async def test_a_table_without_vectors(self, server, config) -> None:
        with connect(server) as connection:
            connection.execute("CREATE TABLE plain.bare (id int PRIMARY KEY, text text)")
        source = self.open(config, collection="plain.bare")
        with pytest.raises(SourceError, match="has 0 vectors"):
            await source.query("wall")
        source.close()
