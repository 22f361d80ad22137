"""System tools: requests of a flow file as tools for models."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import ConfigError, InvalidInputError, LoomError, NetError, NetFailure
from loom_core.flow.expressions import ExpressionValues
from loom_core.flow.http.caller import EndpointCaller
from loom_core.flow.http.request import is_lost
from loom_core.flow.http.response import interpret_response
from loom_core.tools.arguments import ToolArguments
from loom_core.tools.interface import CallContext, Tool, ToolAnnotations, ToolOutput
from loom_core.tools.permission.rule import PermissionRule
from loom_core.tools.schemas.form import schema_problem

if TYPE_CHECKING:
    from typing import Any

    from loom_core.flow.config.models import FlowFile, SystemToolConfig
    from loom_core.tools.interface import JsonValue

__all__ = [
    "DOUBT",
    "FAILURE",
    "PROBLEM",
    "TOLD",
    "ConfigToolLoader",
    "HttpTool",
    "SystemExecutor",
    "Variables",
]


DOUBT = "loom/doubt"
"""Key in the output of a failed call (`ToolOutput.metadata`) if it may have been carried out: `lost`, the
outcome is unknown; `failed`, the server failed during it, mostly before any change."""

FAILURE = "loom/failure"
"""Key for the reason of a failure: a `NetFailure` without a response, else the status."""

TOLD = "loom/told"
"""Key for the endpoint's `failure` text, for users."""

PROBLEM = "loom/problem"
"""Key for the full problem, with its address, for operators; models and users get less."""

_SPARE_SECONDS = 10.0

_NO_ANSWER: Mapping[NetFailure, str] = {
    "connection": "The system cannot be reached.",
    "interrupted": "The connection broke before there was an answer.",
    "timeout": "The system did not answer in time.",
    "unavailable": "The system is busy. Try again later.",
    "unusable": "The answer of the system cannot be used.",
}
_BROKEN = "The call could not be made, whatever its arguments are. Tell the user that it does not work now."
_UNSENDABLE = "A value among the arguments cannot be sent as it is. Give a plain one."
_UNREADABLE = "The answer of the system is not what it should be."

Variables = Callable[[CallContext], Mapping[str, "JsonValue"]]
"""Callback that returns the caller's context variables (`$context.tenantId`)."""

_MADE_OF_PARTS = frozenset({"allOf", "anyOf", "oneOf", "$ref", "patternProperties", "if"})
_MAYBE_DONE = "It is not known whether it took effect: check before you try again, or tell the user."


class HttpTool(Tool):
    """A request of a flow file as a tool.

    Its arguments are the inputs of the request. Reading is allowed, as it only uses addresses of the file; a
    request with side effects needs approval, unless rules allow it.
    """

    def __init__(self, config: SystemToolConfig, caller: EndpointCaller, *, variables: Variables) -> None:
        self._config = config
        self._caller = caller
        self._variables = variables
        self._schema = _schema(config.parameters)
        self._arguments = ToolArguments(config.name, self._schema)

    def __repr__(self) -> str:
        return f"<HttpTool {self._config.name}>"

    @property
    def name(self) -> str:
        """Name in the file."""
        return self._config.name

    @property
    def description(self) -> str:
        """Description in the file."""
        return self._config.description

    @property
    def args_schema(self) -> Mapping[str, Any]:
        """Schema in the file; additional arguments are forbidden unless it allows them."""
        return self._schema

    @property
    def annotations(self) -> ToolAnnotations:
        """Annotations as declared in the file, else as the method implies."""
        reads = self._config.is_read_only
        return ToolAnnotations(
            read_only=reads,
            destructive=not reads,
            idempotent=self._config.repeatable,
            open_world=False,
        )

    @property
    def approval_reason(self) -> str:
        """Reason for approval, if the file demands it."""
        return "Each call needs confirmation." if self._config.confirm else ""

    @property
    def needs_seconds(self) -> float:
        """Timeout of the request, and a margin for it to report whether it may have been carried out."""
        return self._config.endpoint.timeout_seconds + _SPARE_SECONDS

    def prepare_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Validate and repair arguments, and add the schema's defaults.

        Raises:
            InvalidInputError: they are invalid by the schema.
        """
        checked = self._arguments.validate(arguments)
        properties = cast("Mapping[str, object]", self._schema.get("properties", {}))
        defaults = {
            name: cast("Mapping[str, object]", each)["default"]
            for name, each in properties.items()
            if name not in checked and isinstance(each, Mapping) and "default" in each
        }
        return {**checked, **defaults}

    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        """Send the request; the output is the endpoint's `result`."""
        context = context or CallContext()
        endpoint = self._config.endpoint
        try:
            inputs = self.prepare_arguments(arguments)
        except LoomError as error:
            return self._failure_output(str(error), error)
        values = ExpressionValues(inputs=inputs, context=self._variables(context))
        try:
            answer = await self._caller.call(
                endpoint,
                values,
                run_id=context.run_id,
                step_id=context.call_id,
                seconds=context.seconds,
            )
        except LoomError as error:
            lost = isinstance(error, NetError) and is_lost(error)
            return self._failure_output(_plain(error), error, {DOUBT: "lost"} if lost else {})
        about: dict[str, Any] = {"status": answer.status, "attempts": answer.attempts, "url": answer.url}
        try:
            judgement = interpret_response(endpoint, answer, values)
        except LoomError as error:  # it was carried out, and its response cannot be read
            return self._failure_output(_UNREADABLE, error, {**about, DOUBT: "lost"})
        if not judgement.is_success:
            lost = is_lost(answer.status)
            doubt = {DOUBT: "lost" if lost else "failed"} if answer.maybe_done else {}
            about |= {FAILURE: answer.status, PROBLEM: judgement.problem, TOLD: judgement.told}
            return ToolOutput(judgement.plain, is_error=True, metadata=about | doubt)
        result = judgement.result
        if result is None or result == "":
            return ToolOutput(f"Done ({answer.status}); the answer is empty.", metadata=about)
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        return ToolOutput(text, result if isinstance(result, (dict, list)) else None, metadata=about)

    def _failure_output(
        self, said: str, error: LoomError, about: Mapping[str, Any] | None = None
    ) -> ToolOutput:
        about = {**(about or {}), PROBLEM: str(error)}
        if isinstance(error, NetError):
            about[FAILURE] = error.failure
        more = f" {_MAYBE_DONE}" if DOUBT in about and not self._config.is_read_only else ""
        return ToolOutput(f"{said}{more}", is_error=True, metadata=about)


def _plain(error: LoomError) -> str:
    """Return a model's message for a request without a response."""
    if isinstance(error, InvalidInputError):
        return _UNSENDABLE
    return _NO_ANSWER.get(error.failure, _BROKEN) if isinstance(error, NetError) else _BROKEN


def _schema(written: Mapping[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {}, **written}
    if not _MADE_OF_PARTS.intersection(schema):
        schema.setdefault("additionalProperties", False)
    return schema


class SystemExecutor:
    """Executor of system tools.

    Args:
        caller: sender of requests.
        context: variables of the conversation (`tenantId`, `chatbotId`), or a function that returns those of
            a call.
    """

    def __init__(
        self, caller: EndpointCaller, context: Mapping[str, JsonValue] | Variables | None = None
    ) -> None:
        self._caller = caller
        self._context = context

    def tool(self, config: SystemToolConfig) -> HttpTool:
        """Build the tool of a system tool.

        Raises:
            ConfigError: its schema is not usable.
        """
        if problem := schema_problem(config.parameters):
            raise ConfigError(
                f"The tool {config.name!r} is invalid: its schema {problem}.",
                advice="Correct `parameters`: a JSON Schema of an object.",
            )
        return HttpTool(config, self._caller, variables=self._variables)

    async def execute(self, config: SystemToolConfig, parameters: Mapping[str, Any]) -> ToolOutput:
        """Call a system tool once; permissions are up to the caller.

        Errors are in the output, in words for a model.

        Raises:
            ConfigError: its schema is not usable.
        """
        return await self.tool(config).call(parameters)

    def _variables(self, context: CallContext) -> Mapping[str, JsonValue]:
        return self._context(context) if callable(self._context) else self._context or {}


class ConfigToolLoader:
    """Loader of `system_tools` as tools, without flows and knowledge.

    Args:
        file: the flow file.
        caller: sender of requests; by default one of its own, until the program ends.
        variables: returns the context variables of a call, such as those of its run; by default the `context`
            of the file, which they override.
    """

    def __init__(
        self, file: FlowFile, caller: EndpointCaller | None = None, *, variables: Variables | None = None
    ) -> None:
        self._file = file
        self._own_variables = variables
        self._executor = SystemExecutor(caller or EndpointCaller(file), self._variables)

    def load(self) -> list[Tool]:
        """Return the enabled tools, in the file's order.

        Raises:
            ConfigError: a schema is not usable.
        """
        return [self._executor.tool(config) for config in self._file.system_tools if config.enabled]

    def rules(self) -> list[PermissionRule]:
        """Return the file's permission rules: a tool with `confirm: false` needs no approval."""
        return [
            PermissionRule(tool=config.name, action="allow")
            for config in self._file.system_tools
            if config.enabled and config.confirm is False
        ]

    def _variables(self, context: CallContext) -> Mapping[str, JsonValue]:
        if self._own_variables is None:
            return self._file.context
        return {**self._file.context, **self._own_variables(context)}
