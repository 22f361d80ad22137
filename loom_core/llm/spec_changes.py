"""Vendors as users describe them: what is different from what Loom knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from loom_core.errors import ConfigError
from loom_core.keys import checked_variable
from loom_core.llm.spec import ProviderSpec

__all__ = ["changed"]

_ATTRIBUTES = frozenset(field.name for field in fields(ProviderSpec))


def changed(spec: ProviderSpec, changes: Mapping[str, Any], *, path: str = "spec") -> ProviderSpec:
    """A vendor with some attributes changed, which then hold for all of its models.

    Args:
        spec: the vendor.
        changes: attributes of `ProviderSpec` and their values, as they are read from JSON: lists for tuples
            and sets, objects for `ModelRule`. Given `models` take the place of all rules there are.
        path: where the changes stand in the configuration, for messages.

    Raises:
        ConfigError: there is no such attribute, or it cannot have that value; the message names it.
    """
    values = _values(changes, path)
    if "models" in values:
        rules = [
            replace(rule, changes=_of_rule(rule.changes, f"{path}.models[{number}].changes"))
            for number, rule in enumerate(values.pop("models"))
        ]
    else:
        rules = [replace(rule, changes=_without(rule.changes, values)) for rule in spec.models]
    return replace(spec, **values, models=tuple(rules))


def _of_rule(changes: Mapping[str, Any], path: str) -> dict[str, Any]:
    if "models" in changes:
        raise ConfigError(f"{path}.models: rules hold no rules.", advice="Write each one beside the others.")
    return _values(changes, path)


def _values(changes: Mapping[str, Any], path: str) -> dict[str, Any]:
    types = get_type_hints(ProviderSpec)
    values: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in _ATTRIBUTES:
            raise ConfigError(f"{path}.{name}: there is no such attribute.", advice=_nearest(name))
        try:
            values[name] = TypeAdapter[Any](types[name]).validate_python(value)
        except ValidationError as error:
            why = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
            raise ConfigError(
                f"{path}.{name}: {why}.", advice="Its values are described with `ProviderSpec`."
            ) from None
    if values.get("key_variable"):
        checked_variable(
            values["key_variable"],
            setting=f"{path}.key_variable",
            advice="Put the key into one and name it, such as MY_KEY; or refer to it by `api_key`.",
        )
    return values


def _nearest(name: str) -> str:
    near = get_close_matches(name, sorted(_ATTRIBUTES), n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(sorted(_ATTRIBUTES))}."


def _without(changes: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if name not in set(names)}
