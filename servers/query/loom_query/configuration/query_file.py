"""The configuration file of sources: `query.json`, JSON with comments and trailing commas.

    {
      "sources": {
        "notes": {"kind": "local", "knowledge_base": "notes"},
        "wiki": {"kind": "http", "url": "https://wiki.example/api/search", "limit_field": "topK"},
        "issues": {"kind": "mcp", "server": "tracker", "description": "Open and closed issues."}
      },
      "deadline": 10,
      "llm": "deepseek"
    }

A fault in one source disables that source only; an unreadable file is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from pydantic import BaseModel, ValidationError

from loom_core.config_file import plain_reason, read_config_file
from loom_core.errors import ConfigError
from loom_core.knowledge.text.control_characters import CONTROL_CHARACTERS
from loom_core.llm.json_schema.values import readable_path
from loom_query.configuration.source_config import (
    KINDS,
    ConfiguredSource,
    LocalConfig,
    SourceConfigBase,
    advice_on,
    config_model,
)

if TYPE_CHECKING:
    from loom_core.config_file import ConfigText
    from loom_core.llm.config import ProviderConfig
    from loom_core.mcp_client.configuration.expansion import Expansion
    from loom_query.configuration.source_config import Kind, SourceConfig

__all__ = ["KEYS", "QueryFile", "SourceProblem", "read_query_file"]

KEYS: Mapping[str, str] = {
    "sources": "The sources by name: 1 to 64 characters of any script. Left out: all knowledge bases of "
    "the home.",
    "deadline": "Seconds that a source has for an answer, up to 40; 10 by default.",
    "llm": "The language model of `ask`, as a text (`deepseek/deepseek-flash`) or an object. "
    "Its key is in the vendor's usual variable or the keyring, never here.",
}
"""The keys of the file, with their meaning."""

_DEPTH = 4  # the file, its sources, each of them, its mapping
_MAX_NAME = 64
_MAX_BYTES = 16 << 20
_DEADLINE = 10.0
_REFERENCE = re.compile(r"\benv:([A-Za-z_]\w*)|\$\{([A-Za-z_]\w*)")
_EVERYTHING = "local"
_AS_WRITTEN = {
    "local",
    "mcp",
    "documents",
}  # a server expands its own variables


_ModelT = TypeVar("_ModelT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """Problem of an entry that cannot be used.

    Attributes:
        name: name of the entry.
        kind: kind of the source, if it is known.
        message: what is wrong, with `file:line:column` in front.
        advice: what to write instead.
    """

    name: str
    kind: Kind | Literal["unknown"]
    message: str
    advice: str

    def __str__(self) -> str:
        return f"{self.message} {self.advice}".rstrip()


@dataclass(frozen=True, slots=True)
class QueryFile:
    """The configuration of sources.

    Attributes:
        sources: the entries that can be used, in their order.
        problems: the problems of the other entries.
        llm: the language model of `ask`; None if none is configured.
        llm_problem: why it cannot be used, or empty.
        variables: environment variables that the file refers to.
    """

    sources: tuple[ConfiguredSource, ...] = ()
    problems: tuple[SourceProblem, ...] = ()
    llm: ProviderConfig | None = None
    llm_problem: str = ""
    variables: tuple[str, ...] = ()


def read_query_file(path: Path, *, required: bool = False) -> QueryFile:
    """Read a configuration; without a file, all knowledge bases of the home are sources. Blocks.

    Args:
        path: the file.
        required: whether the file must exist.

    Raises:
        ConfigError: it cannot be read, or is invalid; the message says where and why.
    """
    written = read_config_file(
        path,
        depth=_DEPTH,
        max_bytes=_MAX_BYTES,
        required=required,
        too_large="Make it a knowledge base.",
    )
    return QueryFile(sources=(_everything(path),)) if written is None else _ConfigReader(path, written).file()


class _ConfigReader:
    """Parser of one configuration."""

    def __init__(self, path: Path, written: ConfigText) -> None:
        self._path = path
        self._written = written

    def file(self) -> QueryFile:
        value = cast("dict[str, Any]", self._written.value)
        for name in value:
            if name not in KEYS:
                raise self._written.to_error(
                    (name,), f"{name!r} is not known here.", f"There are: {', '.join(KEYS)}."
                )
        deadline = value.get("deadline", _DEADLINE)
        if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not 0 < deadline <= 40:
            raise self._written.to_error(
                ("deadline",), "deadline is not a number of seconds up to 40.", "Write 10, for example."
            )
        entries = value.get("sources")
        if entries is None:
            sources, problems = [_everything(self._path, deadline)], []
        elif isinstance(entries, dict):
            sources, problems = self._sources(cast("dict[str, Any]", entries), float(deadline))
        else:
            raise self._written.to_error(
                ("sources",), "sources is not an object.", 'Write {"name": {"kind": "local"}}.'
            )
        llm, llm_problem = self._model(value.get("llm"))
        variables = dict.fromkeys(
            name for pair in _REFERENCE.findall(self._written.text) for name in pair if name
        )
        return QueryFile(tuple(sources), tuple(problems), llm, llm_problem, tuple(variables))

    def _sources(
        self, entries: Mapping[str, Any], deadline: float
    ) -> tuple[list[ConfiguredSource], list[SourceProblem]]:
        sources: list[ConfiguredSource] = []
        problems: list[SourceProblem] = []
        for name, written in entries.items():
            try:
                sources.append(self._source(name, written, deadline))
            except ConfigError as error:
                kind: object = (
                    cast("dict[str, Any]", written).get("kind") if isinstance(written, dict) else ""
                )
                known: Kind | None = next((each for each in KINDS if each == kind), None)
                problems.append(SourceProblem(name, known or "unknown", error.message, error.advice))
        return sources, problems

    def _source(self, name: str, written: object, deadline: float) -> ConfiguredSource:
        path = ("sources", name)
        if not name.strip() or len(name) > _MAX_NAME or CONTROL_CHARACTERS.search(name):
            raise self._written.to_error(
                path, "a source cannot be called so.", f"Use 1 to {_MAX_NAME} characters of any script."
            )
        if not isinstance(written, dict):
            raise self._written.to_error(
                path, f"{name!r} is not an object.", 'Write {"kind": "local"}, for example.'
            )
        values = cast("dict[str, Any]", written)
        common = {key: value for key, value in values.items() if key in SourceConfigBase.model_fields}
        said = self._validate(SourceConfigBase, common, path)
        config = self._config(said.kind, {k: v for k, v in values.items() if k not in common}, path)
        return ConfiguredSource(name, said, config, said.deadline or deadline, self._written.where(path))

    def _config(self, kind: Kind, values: Mapping[str, Any], path: tuple[str, ...]) -> SourceConfig:
        if kind not in _AS_WRITTEN or (kind == "local" and "home" in values):
            from loom_core.mcp_client.configuration.expansion import Expansion

            expansion = Expansion(os.environ)
            try:
                values = {key: _expand(value, expansion) for key, value in values.items()}
            except ConfigError as error:
                raise self._written.to_error(path, error.message, error.advice) from None
        return self._validate(config_model(kind), values, path)

    def _validate(self, model: type[_ModelT], values: Mapping[str, Any], path: tuple[str, ...]) -> _ModelT:
        try:
            return model.model_validate(values)
        except ValidationError as error:
            every = error.errors(include_url=False, include_context=False, include_input=False)
        found = every[0]
        reason = plain_reason(found)
        place = readable_path(found["loc"])
        if found["type"] == "extra_forbidden":
            reason = "is not known here"
        elif found["type"] == "missing":
            reason = "is missing"
        told = f"{place} {reason}." if reason.startswith(("is ", "should ")) else f"{place}: {reason}."
        raise self._written.to_error((*path, *found["loc"]), told, advice_on(found, model))

    def _model(self, written: object) -> tuple[ProviderConfig | None, str]:
        if written is None:
            return None, ""
        from loom_core.llm.config import ProviderConfig

        try:
            return ProviderConfig.of(cast("dict[str, Any] | str", written)), ""
        except ConfigError as error:
            return None, f"{self._written.where(('llm',))}: {error}"


def _everything(path: Path, deadline: float = _DEADLINE) -> ConfiguredSource:
    return ConfiguredSource(
        _EVERYTHING, SourceConfigBase(kind="local"), LocalConfig(), deadline, where=str(path)
    )


def _expand(value: Any, expansion: Expansion) -> Any:  # noqa: ANN401 - JSON in, JSON out
    """Expand the variables in a value."""
    if isinstance(value, str):
        return expansion.text(value)
    if isinstance(value, list):
        return [_expand(each, expansion) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _expand(each, expansion) for key, each in cast("dict[str, Any]", value).items()}
    return value
