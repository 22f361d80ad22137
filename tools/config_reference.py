"""Writes the tables of agent-config.md, permissions.md and query-config.md in docs/reference.

    python -m tools.reference config

The pages are written by hand, their tables made from the models that read the files. A key of which nothing
is said there is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from inspect import getdoc
from pathlib import Path
from typing import get_args

from loom_agent.profiles.context_config import ContextConfig
from loom_agent.profiles.guardrails_config import DeniedPattern, GuardrailsConfig
from loom_agent.profiles.profile_config import (
    ApprovalsConfig,
    BudgetConfig,
    CallLimitsConfig,
    CompactionConfig,
    HandoffConfig,
    McpConfig,
    ModelOptions,
    ProfileConfig,
    RouteConfig,
    RouterConfig,
    SchedulerConfig,
    ToolRetriesConfig,
    ToolsConfig,
    UserMemoryConfig,
)
from loom_query.configuration.collection_config import CollectionSourceConfig
from loom_query.configuration.mcp_config import McpConfig as McpSourceConfig
from loom_query.configuration.query_file import KEYS
from loom_query.configuration.source_config import DocumentsConfig, LocalConfig, SourceConfigBase
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from loom_core.knowledge.sources.collections.config import CollectionFields, SearchBody
from loom_core.knowledge.sources.documents import TextDocument
from loom_core.knowledge.sources.remote.http import HTTPKnowledgeConfig
from loom_core.knowledge.sources.remote.result_mapping import ResultMapping
from loom_core.tools.builtin.config import (
    FileToolsConfig,
    HttpToolsConfig,
    ShellToolConfig,
)
from loom_core.tools.permission.rule import PermissionRule
from tools.marked_block import with_block
from tools.provider_reference import list_choices, settings, table

_FOLDER = Path(__file__).parents[1] / "docs" / "reference"
_INSIDE = (ModelOptions, McpConfig, FileToolsConfig, HttpToolsConfig, ShellToolConfig)
"""Small parts, whose keys stand in the table of what they are in: `files.root`."""

Rows = Iterator[tuple[str, ...]]


def pages() -> Mapping[Path, str]:
    """Return the pages with their tables.

    Raises:
        ValueError: nothing is said of a key, or a page lacks a place for a table.
    """
    made: dict[Path, str] = {}
    for name, blocks in _TABLES.items():
        text = (_FOLDER / name).read_text(encoding="utf-8")
        for block, rows in blocks.items():
            text = with_block(text, block, table(rows()))
        made[_FOLDER / name] = text
    return made


def _head() -> tuple[str, ...]:
    return "key", "default", "meaning"


def _model(model: type[BaseModel]) -> Rows:
    yield _head()
    yield from _rows(model)


def _rows(model: type[BaseModel], *, within: str = "") -> Rows:
    _, *written = settings(model)
    for (key, default, _), (name, field) in zip(written, model.model_fields.items(), strict=True):
        parts = [each for each in _models(field.annotation) if each in _INSIDE]
        if parts:
            yield from _rows(parts[0], within=f"{within}{name}.")
        else:
            yield f"`{within}{key[1:-1]}`", _default(default, field), _meaning(model, name, field)


def _default(written: str, field: FieldInfo) -> str:
    return "none" if not field.is_required() and field.default in (None, "") else written


def _meaning(model: type[BaseModel], name: str, field: FieldInfo) -> str:
    """Return the meaning of a field: its description, or the docstring of its class or of what it holds."""
    _, _, listed = (getdoc(model) or "").partition("Attributes:\n")
    told = dict(re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", listed, re.MULTILINE))
    held = [(getdoc(each) or "").partition("\n")[0] for each in _models(field.annotation)]
    text = " ".join((field.description or told.get(name) or next(iter(held), "")).split())
    if not text:
        raise ValueError(f"Nothing is said of {model.__name__}.{name}.")
    choices = [each for each in list_choices(field.annotation) if not re.search(rf"\b{each}\b", text)]
    one_of = f" One of: {', '.join(f'`{each}`' for each in choices)}." if choices else ""
    end = "" if text.endswith((".", "…")) else "."
    return f"{text[0].upper()}{text[1:]}{end}{one_of}"


def _models(annotation: object) -> list[type[BaseModel]]:
    """Return the models in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for part in get_args(annotation) for kind in _models(part)]


def _query() -> Rows:
    yield "key", "meaning"
    for key, meaning in KEYS.items():
        yield f"`{key}`", meaning


_TABLES: Mapping[str, Mapping[str, Callable[[], Rows]]] = {
    "agent-config.md": {
        "profile": partial(_model, ProfileConfig),
        "tools": partial(_model, ToolsConfig),
        "context": partial(_model, ContextConfig),
        "guardrails": partial(_model, GuardrailsConfig),
        "deny": partial(_model, DeniedPattern),
        "permissions": partial(_model, PermissionRule),
        "budget": partial(_model, BudgetConfig),
        "call_limits": partial(_model, CallLimitsConfig),
        "tool_retries": partial(_model, ToolRetriesConfig),
        "approvals": partial(_model, ApprovalsConfig),
        "router": partial(_model, RouterConfig),
        "route": partial(_model, RouteConfig),
        "handoff": partial(_model, HandoffConfig),
        "compaction": partial(_model, CompactionConfig),
        "user_memory": partial(_model, UserMemoryConfig),
        "scheduler": partial(_model, SchedulerConfig),
    },
    "permissions.md": {"rule": partial(_model, PermissionRule)},
    "query-config.md": {
        "file": _query,
        "source": partial(_model, SourceConfigBase),
        "local": partial(_model, LocalConfig),
        "http": partial(_model, HTTPKnowledgeConfig),
        "mcp": partial(_model, McpSourceConfig),
        "documents": partial(_model, DocumentsConfig),
        "document": partial(_model, TextDocument),
        "mapping": partial(_model, ResultMapping),
        "collection": partial(_model, CollectionSourceConfig),
        "fields": partial(_model, CollectionFields),
        "body": partial(_model, SearchBody),
    },
}


if __name__ == "__main__":
    for _page, _text in pages().items():
        _page.write_text(_text, encoding="utf-8")
