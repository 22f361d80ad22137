"""Configuration of a collection that others have filled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from loom_core.errors import ConfigError
from loom_core.keys import check_reference
from loom_core.knowledge.indexes.engines.servers import ServerUse
from loom_core.knowledge.sources.remote.json_path import PathSetting
from loom_core.knowledge.sources.remote.result_mapping import PassagePaths

__all__ = ["ENGINES", "SOURCE_USE", "CollectionConfig", "CollectionFields", "Engine", "SearchBody"]

Engine = Literal["qdrant", "milvus", "pgvector", "chroma", "elasticsearch", "opensearch"]
"""Engines whose collections can be sources."""

ENGINES: tuple[Engine, ...] = get_args(Engine)

SOURCE_USE = ServerUse("`secret` of the source, as env:NAME or keyring:NAME", is_index=False)


class CollectionFields(PassagePaths):
    """Names of a collection's fields, or their paths: `metadata.title`; see `JsonPath`.

    Those that are left out are found by the usual names, and in the layouts of LangChain and LlamaIndex.
    """

    vector: PathSetting = Field(default="", description="Name of the vector, if there are several.")


class SearchBody(BaseModel):
    """Additions to the body of each search of Elasticsearch or OpenSearch, in the engine's own language."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    query: Mapping[str, Any] = Field(
        default={}, description="A query that every passage must fulfil, besides the filters."
    )
    knn: Mapping[str, Any] = Field(
        default={},
        description="Options of the search by vectors, such as `num_candidates` or `rescore_vector`; of "
        "OpenSearch, `method_parameters` or `rescore`.",
    )

    @field_validator("knn")
    @classmethod
    def _check_knn(cls, knn: Mapping[str, Any]) -> Mapping[str, Any]:
        if given := sorted(_NOT_TUNING & knn.keys()):
            raise ValueError(f"{given[0]!r} is not an option here: `query` restricts what is found.")
        return knn


_NOT_TUNING = {
    "field", "filter", "k", "max_distance", "min_score", "query_vector", "query_vector_builder", "similarity",
    "vector",
}  # fmt: skip
"""Options that Loom sets, or that keep back passages which fulfil a filter."""


class CollectionConfig(BaseModel):
    """Configuration of a collection that others have filled; Loom only reads it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str = Field(min_length=1, description="Address of the server, without a password.")
    collection: str = Field(
        min_length=1,
        description="Its name; for pgvector, that of a table or of LangChain's collection; for Elasticsearch "
        "and OpenSearch, that of an index, an alias or a data stream.",
    )
    secret: str = Field(
        default="", repr=False, description="Password or API key, as `env:NAME` or `keyring:NAME`."
    )
    embedding: str | Mapping[str, Any] = Field(
        default="",
        description="The model that made its vectors: `ollama:bge-m3`, `e5-small`, or an object with "
        "`provider`, `model`…; without it, passages are found by words alone.",
    )
    fields: CollectionFields = Field(
        default=CollectionFields(), description="What its fields are called, where that is not usual."
    )
    filters: Mapping[str, PathSetting] = Field(
        default={},
        description="Filters that it supports: name to field; by default the fields that a sample of it, or "
        "its mapping, has.",
    )
    index_params: Mapping[str, Any] = Field(
        default={},
        description="Milvus only: the index as it was made, `metric_type` and `params`; `nprobe` or `ef` "
        "among these widen a search.",
    )

    body: SearchBody = Field(
        default=SearchBody(),
        description="Elasticsearch and OpenSearch only: additions to the body of each search.",
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if "@" in url and ":" in url.partition("://")[2].rpartition("@")[0]:
            raise ValueError("An address must not hold a password: put it into `secret`.")
        return url

    @field_validator("secret")
    @classmethod
    def _check_secret(cls, reference: str) -> str:
        if reference:
            try:
                check_reference(reference)
            except ConfigError as error:
                raise ValueError(str(error)) from error
        return reference
