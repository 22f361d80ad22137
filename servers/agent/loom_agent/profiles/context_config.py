"""Context of runs: the data that callers pass with a goal, and where they go."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from loom_core.errors import InvalidInputError, LoomError
from loom_core.llm.json_schema.values import check_schema, find_problems
from loom_core.tools.toolbox import ArgumentInjection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

__all__ = ["ContextConfig", "fill_placeholders"]

_PLACEHOLDER = re.compile(r"\{\$context\.([^{}\s]+)\}")


class ContextConfig(BaseModel):
    """Data that a caller passes with a goal: for tools and instructions. The model does not see them."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    properties: dict[str, dict[str, Any]] = Field(
        description="JSON Schemas of the data, by name. `{$context.NAME}` in `system_prompt` is replaced by "
        "the value."
    )
    required: list[str] = Field(default=[], description="Names of data without which no run starts.")
    inject: dict[str, dict[str, str]] = Field(
        default={},
        description="Arguments of tools that are set from the data, and that the model neither sees nor "
        'chooses: by pattern of the tool, the name for each argument: `{"crm:*": {"customer_id": '
        '"customer"}}`.',
    )

    @model_validator(mode="after")
    def _is_usable(self) -> Self:
        try:
            check_schema(self.object_schema())
            ArgumentInjection(self.inject)
        except LoomError as error:
            raise ValueError(error.message) from None
        self._check_known("required", self.required)
        self._check_known("inject", (name for keys in self.inject.values() for name in keys.values()))
        return self

    def check_placeholders(self, text: str) -> None:
        """Check that the placeholders of a text name data that there are.

        Raises:
            ValueError: one does not.
        """
        self._check_known("system_prompt", _PLACEHOLDER.findall(text))

    def object_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the data."""
        return {
            "type": "object",
            "properties": dict(self.properties),
            "required": self.required,
            "additionalProperties": False,
        }

    def merge(self, given: Mapping[str, Any], *, of_token: Mapping[str, str]) -> dict[str, Any]:
        """Return the data of a run, with those that the caller's token fixes.

        Args:
            given: the caller's data.
            of_token: data of its token; those of other profiles are left out.

        Raises:
            InvalidInputError: they do not fit.
        """
        fixed = {name: value for name, value in of_token.items() if name in self.properties}
        data = {**given, **fixed}
        if problems := find_problems(data, self.object_schema()):
            raise InvalidInputError(
                f"The context is invalid: {'; '.join(problems)}.",
                advice=f"It has to fit {json.dumps(self.object_schema(), ensure_ascii=False)}",
            )
        return data

    def _check_known(self, where: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.properties:
                raise ValueError(f"`{where}` names {name!r}, which is not in `properties` of the context")


def fill_placeholders(text: str, data: Mapping[str, Any]) -> str:
    """Return a text with the data in place of its placeholders; missing data are left out."""

    def value_of(match: re.Match[str]) -> str:
        value = data.get(match[1], "")
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return _PLACEHOLDER.sub(value_of, text)
