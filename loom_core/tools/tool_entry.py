"""A tool of a toolbox, with what is worked out of it once."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Mapping
from typing import Any

from loom_core.errors import ConfigError, LoomError
from loom_core.llm.interface import ToolSpec
from loom_core.tokens import estimate_tokens
from loom_core.tools.arguments import ToolArguments
from loom_core.tools.interface import Tool
from loom_core.tools.schemas.form import schema_problem

__all__ = ["ToolEntry"]

_log = logging.getLogger(__name__)


class ToolEntry:
    """A tool, with what is worked out of it once.

    Attributes:
        tool: the tool.
    """

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self._spec: ToolSpec | None = None
        self._is_broken = False
        self._tokens = 0
        self._arguments: ToolArguments | None = None

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model is offered it; see `Tool.spec`."""
        if self._spec is None:
            self._spec = self.tool.spec()
        return self._spec

    @property
    def can_be_offered(self) -> bool:
        """Whether it can be said to a model; a tool of somebody else's may have a schema that is none."""
        if self._spec is None and not self._is_broken:
            try:
                self._spec = self.tool.spec()
            except LoomError as error:
                self._is_broken = True
                _log.warning("the tool %s is not offered: %s", self.tool.name, error)
        return not self._is_broken

    @property
    def tokens(self) -> int:
        """About how many tokens it takes to offer it."""
        if not self._tokens:
            schema = json.dumps(self.spec.parameters, ensure_ascii=False)
            self._tokens = 1 + estimate_tokens(f"{self.spec.name}{self.spec.description}{schema}")
        return self._tokens

    def prepared(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a call: checked, put right once, with defaults.

        Raises:
            InvalidInputError: they are wrong.
            ConfigError: the tool's own schema is.
        """
        given = self.tool.prepared(arguments)
        if given is not None:
            return given
        if self._arguments is None:
            schema = self.tool.args_schema
            if problem := schema_problem(schema):
                raise ConfigError(
                    f"`{self.tool.name}` cannot be called: its schema {problem}.", advice="Use another tool."
                )
            self._arguments = ToolArguments(self.tool.name, schema)
        properties: Mapping[str, Mapping[str, Any] | bool] = self.tool.args_schema.get("properties", {})
        checked = self._arguments.checked(arguments)
        defaults = {
            name: copy.deepcopy(part["default"])  # the tool may change what it is given
            for name, part in properties.items()
            if name not in checked and isinstance(part, Mapping) and "default" in part
        }
        return {**defaults, **checked}
