"""Configuration of remote embedders."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loom_core.embedding.remote_models.ollama import OllamaEmbedder
from loom_core.embedding.remote_models.openai_compatible import OpenAICompatibleEmbedder
from loom_core.embedding.remote_models.settings import DEFAULT_CONCURRENCY
from loom_core.embedding.remote_models.vendors import EMBEDDING_VENDORS
from loom_core.errors import ConfigError, capitalise
from loom_core.installation import how_to_install
from loom_core.keys import find_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.embedding.remote_models.settings import RemoteOptions

__all__ = ["config_of_text", "remote_embedder", "remote_problem"]


class _RemoteConfig(BaseModel):
    """A configuration; numbers may be strings, as in `EmbeddingProvider.config`."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    provider: str
    model: str = ""
    base_url: str = ""
    api_key_env: str = ""
    dimension: int | None = Field(default=None, gt=0)
    query_prefix: str | None = None
    passage_prefix: str | None = None
    query_input_type: str = ""
    passage_input_type: str = ""
    max_tokens: int | None = Field(default=None, gt=0)
    max_texts: int | None = Field(default=None, gt=0)
    max_request_tokens: int | None = Field(default=None, gt=0)
    concurrency: int = Field(default=DEFAULT_CONCURRENCY, gt=0)
    timeout: float | None = Field(default=None, gt=0)


def remote_embedder(config: Mapping[str, object]) -> OllamaEmbedder | OpenAICompatibleEmbedder:
    """Create the embedder of a configuration; nothing is sent yet.

    Args:
        config: `provider`, a name of `EMBEDDING_VENDORS`, and its options.

    Raises:
        ConfigError: it is invalid.
    """
    try:
        wanted = _RemoteConfig.model_validate(dict(config))
    except ValidationError as error:
        raise _misfit(error) from None
    options: RemoteOptions = {
        "api_key_env": wanted.api_key_env,
        "dimension": wanted.dimension,
        "query_prefix": wanted.query_prefix,
        "passage_prefix": wanted.passage_prefix,
        "max_tokens": wanted.max_tokens,
        "max_texts": wanted.max_texts,
        "max_request_tokens": wanted.max_request_tokens,
        "concurrency": wanted.concurrency,
        "timeout": wanted.timeout,
    }
    if wanted.provider == "ollama":
        if wanted.query_input_type or wanted.passage_input_type:
            raise ConfigError(
                "The embedding provider 'ollama' takes no input types.",
                advice="Use query_prefix and passage_prefix.",
            )
        return OllamaEmbedder(model=wanted.model, base_url=wanted.base_url, **options)
    return OpenAICompatibleEmbedder(
        provider=wanted.provider,
        model=wanted.model,
        base_url=wanted.base_url,
        query_input_type=wanted.query_input_type,
        passage_input_type=wanted.passage_input_type,
        **options,
    )


def config_of_text(text: str) -> dict[str, object] | None:
    """Parse a text on a command line: `openai`, `ollama:bge-m3`, or JSON; None for no remote model.

    Raises:
        ConfigError: it looks like JSON and is invalid, or no object.
    """
    if text.lstrip().startswith("{"):
        try:
            config: dict[str, object] = json.loads(text)
        except (ValueError, RecursionError):
            raise ConfigError(
                "The embedding configuration is not valid JSON.",
                advice='Write it as {"provider": "ollama", "model": "bge-m3"}.',
            ) from None
        return config
    provider, _, model = text.partition(":")
    return {"provider": provider, "model": model} if provider in EMBEDDING_VENDORS else None


def remote_problem(config: Mapping[str, object]) -> str:
    """Return why an embedder is unusable, as far as known without a request; empty if it is usable.

    May block for seconds if it reads the keyring.
    """
    try:
        remote_embedder(config)
        vendor = EMBEDDING_VENDORS[str(config["provider"])]
        variable = str(config.get("api_key_env") or vendor.key_variable)
        if vendor.needs_key and find_key(variable) is None:
            return f"{capitalise(vendor.title)} needs a key: put it into the environment variable {variable}"
    except ConfigError as error:
        return str(error)
    if vendor.name != "ollama" and importlib.util.find_spec("openai") is None:
        return f"the package openai is missing. {how_to_install('loom-mcp-core[openai]')}"
    return ""


def _misfit(error: ValidationError) -> ConfigError:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        fields = ", ".join(_RemoteConfig.model_fields)
        secret = "A key is not allowed here: name its environment variable in api_key_env. "
        advice = f"{secret if 'key' in name else ''}Give any of: {fields}."
        return ConfigError(f"The embedding configuration has no option {name!r}.", advice=advice)
    return ConfigError(
        f"{name} of the embedding configuration is wrong: {first['msg']}.", advice=f"Correct {name}."
    )
