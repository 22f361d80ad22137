"""Writes docs/reference/providers.md: the vendors, and their settings.

    python -m tools.reference provider

The page is made from `vendors`, `ProviderConfig` and `ProviderSpec`; a test compares it with the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields
from inspect import getdoc
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from loom_core.llm.config import BreakerSettings, LimitSettings, PriceSettings, ProviderConfig, RetrySettings
from loom_core.llm.hosted.providers import PROVIDERS
from loom_core.llm.vendors import ModelRule, ProviderSpec

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "providers.md"

_HEAD = """\
# Language models: vendors and configuration

Made by `python -m tools.reference` from the code; do not edit.

A model is named by a text, `deepseek` or `deepseek/deepseek-v4-pro`, or by an object:

```json
{
  "provider": "deepseek",
  "model": "deepseek-flash",
  "api_key": "env:MY_KEY",
  "fallbacks": ["ollama/qwen3:8b"]
}
```

`loom_core.llm.create_provider` makes it from either; the classes are in `loom_core.llm`.
"""

_SECTIONS: dict[str, type[BaseModel]] = {
    "Configuration": ProviderConfig,
    "`retry`": RetrySettings,
    "`breaker`": BreakerSettings,
    "`limits`": LimitSettings,
    "`prices`": PriceSettings,
}


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD, "## Vendors", table(_vendors())]
    for title, model in _SECTIONS.items():
        parts += [f"## {title}", getdoc(model) or "", table(settings(model))]
    about = "Any of these can be changed of any vendor; `custom` begins with the defaults."
    parts += ["## `spec`", about, table(_attributes(ProviderSpec))]
    parts += [
        "### `spec.models`",
        (getdoc(ModelRule) or "").partition("\n")[0],
        table(_attributes(ModelRule)),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _vendors() -> Iterator[tuple[str, ...]]:
    yield "`provider`", "class", "key", "default model", "address", "`effort`", "structured output", "images"
    for name, provider in PROVIDERS.items():
        vendor = provider.vendor.for_model(provider.vendor.model)
        title = f"[{vendor.title}]({vendor.docs})" if vendor.docs else vendor.title
        key = f"`{vendor.key_variable}`" if vendor.key_variable else ""
        yield (
            f"`{name}`: {title}",
            f"`{provider.__name__}`",
            key if vendor.needs_key else f"{key} (if the server wants one)".strip(),
            f"`{vendor.model}`" if vendor.model else "to be chosen",
            f"`{vendor.base_url}`" if vendor.base_url else "to be given",
            ", ".join(vendor.efforts) or "–",
            vendor.json_mode,
            "yes" if vendor.images else "–",
        )


def settings(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table of a model's settings."""
    yield "field", "default", "meaning"
    for name, field in model.model_fields.items():
        default = "" if field.is_required() else _write_value(field.get_default(call_default_factory=True))
        yield f"`{field.alias or name}`", default or "required", field.description or ""


def _attributes(kind: type[ProviderSpec | ModelRule]) -> Iterator[tuple[str, ...]]:
    yield "attribute", "default", "meaning"
    _, _, listed = (getdoc(kind) or "").partition("Attributes:\n")
    meanings = dict(re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", listed, re.MULTILINE))
    types = get_type_hints(kind)
    for field in fields(kind):
        meaning = " ".join(meanings[field.name].split())
        if values := [value for value in list_choices(types[field.name]) if f"`{value}`" not in meaning]:
            meaning += f" One of: {', '.join(f'`{value}`' for value in values)}."
        yield f"`{field.name}`", _default(field) or "required", meaning


def list_choices(kind: object) -> list[str]:
    """Return the allowed values, if they are listed."""
    if get_origin(kind) is Literal:
        return [*get_args(kind)]
    return [text for part in get_args(kind) if get_origin(part) is Literal for text in get_args(part)]


def _default(field: Field[Any]) -> str:
    if field.default_factory is not MISSING:
        return _write_value(field.default_factory())
    return "" if field.default is MISSING else _write_value(field.default)


def _write_value(value: object) -> str:
    """Format a value as in a configuration file."""
    if isinstance(value, BaseModel):
        return "see below"
    plain: object = sorted(cast("frozenset[str]", value)) if isinstance(value, frozenset) else value
    return f"`{json.dumps(plain, ensure_ascii=False)}`"


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """Format a table in Markdown; the first row is its head."""
    head, *others = rows
    lines = [head, ("---",) * len(head), *others]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines)


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
