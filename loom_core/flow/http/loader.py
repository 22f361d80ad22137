"""The system tools of a flow file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.flow.http.tool import HttpTool
from loom_core.tools.permission_rule import PermissionRule
from loom_core.tools.schema_form import schema_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.http.caller import EndpointCaller
    from loom_core.flow.http.tool import Variables
    from loom_core.tools.interface import CallContext, JsonValue, Tool

__all__ = ["ConfigToolLoader"]


class ConfigToolLoader:
    """Makes tools of `system_tools`; flows and knowledge are none.

    Args:
        file: what is loaded.
        caller: sends their requests.
        variables: the context variables of a call, such as by its run; by default the `context` of the file.
            They take the place of those of the same name in the file.
    """

    def __init__(self, file: FlowFile, caller: EndpointCaller, *, variables: Variables | None = None) -> None:
        self._file = file
        self._caller = caller
        self._own_variables = variables

    def load(self) -> list[Tool]:
        """The tools that are enabled, in the file's order.

        Raises:
            ConfigError: the schema of one cannot be used.
        """
        tools: list[Tool] = []
        for config in self._file.system_tools:
            if not config.enabled:
                continue
            if problem := schema_problem(config.parameters):
                raise ConfigError(
                    f"The tool {config.name!r} cannot be used: its schema {problem}.",
                    advice="Correct `parameters`: a JSON Schema of an object.",
                )
            tools.append(HttpTool(config, self._caller, variables=self._variables))
        return tools

    def rules(self) -> list[PermissionRule]:
        """What the file says of permission: a tool with `confirm: false` need not be asked about."""
        return [
            PermissionRule(tool=config.name, action="allow")
            for config in self._file.system_tools
            if config.enabled and config.confirm is False
        ]

    def _variables(self, context: CallContext) -> Mapping[str, JsonValue]:
        if self._own_variables is None:
            return self._file.context
        return {**self._file.context, **self._own_variables(context)}
