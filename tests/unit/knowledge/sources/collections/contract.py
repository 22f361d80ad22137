"""The contract of collections as sources, for every engine. A test class of an engine derives from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from loom_core.errors import ConfigError, InvalidInputError, LoomError, SourceError
from loom_core.knowledge import CollectionConfig, CollectionSource
from loom_core.plugins import create
from tests.fixtures.store_servers import free_port

if TYPE_CHECKING:
    from loom_core.knowledge.sources.collections.config import Engine

__all__ = ["CollectionContract"]


class CollectionContract:
    """The fixture `config` has the settings of a collection that holds the towns of `conftest`, by cosine."""

    engine: ClassVar[Engine]
    away: ClassVar[str]
    """An address of the engine with `{port}`, where nothing listens."""

    def open(self, config: dict[str, Any], **changes: Any) -> CollectionSource:
        """The collection as a source, embedded by hashing."""
        settings = CollectionConfig.model_validate({"embedding": "hashing", **config, **changes})
        return CollectionSource(self.engine, settings, name="guide")

    async def test_the_nearest_passages_come_with_title_address_and_cosine(self, config) -> None:
        source = self.open(config)
        found = await source.query("Visby lies on Gotland; its wall is from the thirteenth century.", limit=3)
        assert len(found) == 3
        assert found[0].metadata["title"] == "Visby"
        assert found[0].source == "https://guide.example/2"
        assert found[0].relevance == pytest.approx(1.0, abs=1e-3)
        assert found[0].relevance > found[1].relevance >= found[2].relevance
        source.close()

    async def test_a_passage_is_read_again_by_its_id(self, config) -> None:
        source = self.open(config)
        [first] = await source.query("marzipan port on the Trave", limit=1)
        again = await source.get_by_id(first.id)
        assert again is not None
        assert (again.id, again.content) == (first.id, first.content)
        for unknown in ("no such id", "999999", "00000000-0000-4000-8000-000000000000"):
            assert await source.get_by_id(unknown) is None
        source.close()

    async def test_an_id_may_be_a_field(self, config) -> None:
        source = self.open(config, fields={**config.get("fields", {}), "id": self.field("url")})
        [first] = await source.query("marzipan port on the Trave", limit=1)
        assert first.id == "https://guide.example/1"
        again = await source.get_by_id(first.id)
        assert again is not None
        assert again.content == first.content
        source.close()

    def field(self, name: str) -> str:
        """The path of a field of the metadata."""
        return f"metadata.{name}"

    @pytest.mark.parametrize(
        ("filters", "titles"),
        [
            ({"lang": "zh"}, {"厦门"}),
            ({"year": 1903}, {"厦门"}),
            ({"year": "1903"}, {"厦门"}),
            ({"year": [1902, 1903]}, {"Visby", "厦门"}),
            ({"rate": 1.5}, {"厦门"}),
            ({"title": ["Visby", "Brno"]}, {"Visby", "Brno"}),
            ({"walled": True}, {"Visby", "Town 52", "Town 102", "Town 152", "Town 202", "Town 252"}),
            ({"year": {"lte": 1902}}, {"Lübeck", "Visby"}),
            ({"year": {"gte": 2199}}, {"Town 299", "Town 300"}),
            ({"year": {"lt": 1905}, "lang": {"ne": "zh"}}, {"Lübeck", "Visby", "Brno"}),
            ({"year": {"lt": 1904}, "title": {"ne": ["Visby", "Brno"]}}, {"Lübeck", "厦门"}),
        ],
    )
    async def test_the_engine_decides_filters(self, config, filters, titles) -> None:
        source = self.open(config)
        found = await source.query("a port with a wall", limit=20, filters=filters)
        assert {item.metadata["title"] for item in found} == titles
        source.close()

    async def test_a_rare_value_does_not_shorten_the_answer(self, config) -> None:
        source = self.open(config)
        found = await source.query("厦门", limit=6, filters={"walled": True})
        assert len(found) == 6
        source.close()

    async def test_filters_are_known_after_the_first_question(self, config) -> None:
        source = self.open(config)
        assert source.supported_filters == ()
        with pytest.raises(InvalidInputError, match="no filter 'colour'") as caught:
            await source.query("wall", filters={"colour": "red"})
        assert "lang" in caught.value.advice
        assert {"lang", "rate", "title", "url", "walled", "year"} <= set(source.supported_filters)
        source.close()
        named = self.open(config, filters={"language": self.field("lang")})
        assert named.supported_filters == ("language",)
        assert len(await named.query("wall", limit=20, filters={"language": "zh"})) == 1
        named.close()

    async def test_retrievers_search_it_by_words_too(self, config) -> None:
        source = self.open(config)
        for name in ("bm25", "hybrid", "fusion"):
            found = await create("retriever", name, [source]).retrieve("marzipan", top_k=2)
            assert found[0]["metadata"]["title"] == "Lübeck", name
            assert found[0]["knowledge_base_id"] == "guide"
        source.close()

    async def test_without_a_model_it_is_searched_by_words(self, config) -> None:
        source = self.open(config, embedding="")
        found = await source.query("marzipan", limit=5)
        assert [item.metadata["title"] for item in found] == ["Lübeck"]
        with pytest.raises(ConfigError, match="names no model"):
            await create("retriever", "dense", [source]).retrieve("marzipan")
        source.close()

    async def test_all_passages_can_be_listed(self, config) -> None:
        source = self.open(config)
        assert len({item.id for item in await source.passages(limit=1000)}) == 300
        assert len(await source.passages(limit=7)) == 7
        assert len(await source.passages(limit=20, filters={"walled": True})) == 6
        report = await source.describe()
        assert (report.passages, report.dimension, report.metric) == (300, 512, "cosine")
        source.close()

    async def test_a_model_of_another_dimension_is_refused_with_both_numbers(self, config) -> None:
        source = self.open(config, embedding="e5-small")
        with pytest.raises(ConfigError, match=r"512 numbers.* 384"):
            await source.query("wall")
        with pytest.raises(ConfigError, match=r"512 numbers.* 384"):
            await source.describe()
        source.close()

    async def test_a_collection_that_does_not_exist(self, config) -> None:
        source = self.open(config, collection="no_such_collection")
        with pytest.raises(SourceError, match="no_such_collection"):
            await source.query("wall")
        source.close()

    async def test_a_text_that_is_nowhere(self, config) -> None:
        source = self.open(config, fields={"text": "nowhere"})
        with pytest.raises(SourceError, match="a text under 'nowhere'") as caught:
            await source.query("wall")
        assert self.field("title") in caught.value.advice
        source.close()

    async def test_a_server_that_is_away(self, config) -> None:
        source = self.open(config, url=self.away.format(port=free_port()))
        with pytest.raises(LoomError, match="cannot be asked") as caught:
            await source.query("wall")
        assert "Start it, or check its address." in caught.value.advice
        assert "LOOM_VECTORS_SECRET" not in str(caught.value)
        source.close()
