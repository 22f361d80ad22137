"""System tools of a flow file: loading them, and running one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.flow.http.caller import EndpointCaller
from loom_core.flow.http.tool import HttpTool
from loom_core.tools.permission.rule import PermissionRule
from loom_core.tools.schemas.form import schema_problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loom_core.flow.config.models import FlowFile, SystemToolConfig
    from loom_core.flow.http.tool import Variables
    from loom_core.tools.interface import CallContext, JsonValue, Tool, ToolOutput

__all__ = ["ConfigToolLoader", "SystemExecutor"]


class SystemExecutor:
    """Makes the requests of system tools.

    Args:
        caller: sends them.
        context: variables of the conversation (`tenantId`, `chatbotId`), or what gives those of a call.
    """

    def __init__(
        self, caller: EndpointCaller, context: Mapping[str, JsonValue] | Variables | None = None
    ) -> None:
        self._caller = caller
        self._context = context

    def tool(self, config: SystemToolConfig) -> HttpTool:
        """A system tool as a tool for agents.

        Raises:
            ConfigError: its schema cannot be used.
        """
        if problem := schema_problem(config.parameters):
            raise ConfigError(
                f"The tool {config.name!r} cannot be used: its schema {problem}.",
                advice="Correct `parameters`: a JSON Schema of an object.",
            )
        return HttpTool(config, self._caller, variables=self._variables)

    async def execute(self, config: SystemToolConfig, parameters: Mapping[str, Any]) -> ToolOutput:
        """Call a system tool once; permissions are the program's own affair.

        What went wrong is in the output, in words for a model.

        Args:
            config: the tool.
            parameters: its arguments.

        Raises:
            ConfigError: its schema cannot be used.
        """
        return await self.tool(config).call(parameters)

    def _variables(self, context: CallContext) -> Mapping[str, JsonValue]:
        return self._context(context) if callable(self._context) else self._context or {}


class ConfigToolLoader:
    """Makes tools of `system_tools`; flows and knowledge are none.

    Args:
        file: what is loaded.
        caller: sends their requests; by default one of its own, as long as the program runs.
        variables: the context variables of a call, such as by its run; by default the `context` of the file.
            They take the place of those of the same name in the file.
    """

    def __init__(
        self, file: FlowFile, caller: EndpointCaller | None = None, *, variables: Variables | None = None
    ) -> None:
        self._file = file
        self._own_variables = variables
        self._executor = SystemExecutor(caller or EndpointCaller(file), self._variables)

    def load(self) -> list[Tool]:
        """The tools that are enabled, in the file's order.

        Raises:
            ConfigError: the schema of one cannot be used.
        """
        return [self._executor.tool(config) for config in self._file.system_tools if config.enabled]

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
