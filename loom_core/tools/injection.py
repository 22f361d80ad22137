"""Argument injection: the program sets arguments of tools; models neither see nor choose them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from loom_core.errors import InvalidInputError
from loom_core.tools.interface import Tool
from loom_core.tools.patterns import matcher

__all__ = ["ArgumentInjection", "inject_arguments", "without_arguments"]


class ArgumentInjection:
    """Chooses the arguments that are set from the data of the run, such as the id of a customer.

    Args:
        rules: by pattern of a tool's name, for people or models, the key of the data for each argument:
            `{"crm:*": {"customer_id": "customer"}}`.

    Raises:
        ConfigError: a pattern is invalid.
    """

    def __init__(self, rules: Mapping[str, Mapping[str, str]]) -> None:
        self._rules = [(matcher(pattern), dict(keys)) for pattern, keys in rules.items()]

    def keys_for(self, tool: Tool) -> Mapping[str, str]:
        """Return the key of the data for each argument of a tool that is injected."""
        found = [keys for fits, keys in self._rules if fits(tool.name) or fits(tool.wire_name)]
        if not found:
            return {}
        properties: object = tool.args_schema.get("properties")
        if not isinstance(properties, Mapping):  # a schema of a third party may be anything
            return {}
        return {argument: key for keys in found for argument, key in keys.items() if argument in properties}


def without_arguments(schema: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    """Return a schema of arguments without some of them; the same one if it has none of them."""
    if not names:
        return schema
    left = {name: part for name, part in schema["properties"].items() if name not in names}
    required = [name for name in schema.get("required", ()) if name not in names]
    others = {key: part for key, part in schema.items() if key not in {"properties", "required"}}
    return {**others, "properties": left, **({"required": required} if required else {})}


def inject_arguments(
    given: Mapping[str, Any], keys: Mapping[str, str], data: Mapping[str, Any], *, tool: str
) -> Mapping[str, Any]:
    """Return arguments of a call with those that are injected; data that are missing set none.

    Args:
        given: the arguments of the model, or of a person who changed them.
        keys: the result of `ArgumentInjection.keys_for`.
        data: the data of the run.
        tool: name of the tool.

    Raises:
        InvalidInputError: an injected argument was given with another value.
    """
    fixed = {argument: data[key] for argument, key in keys.items() if key in data}
    for argument in keys:
        if argument in given and (argument not in fixed or given[argument] != fixed[argument]):
            raise InvalidInputError(
                f"`{argument}` of `{tool}` is set by the program and cannot be chosen.",
                advice="Leave it out.",
            )
    return {**given, **fixed}
