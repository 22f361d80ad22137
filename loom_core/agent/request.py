"""Run requests, validated before a run starts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict, cast

from pydantic import BaseModel

from loom_core.agent.attachments import AttachmentSource, is_loaded
from loom_core.errors import ConfigError, InvalidInputError
from loom_core.llm.json_schema.values import check_schema
from loom_core.llm.structured import model_schema
from loom_core.runs.journal.rows.json_column import to_column
from loom_core.runs.run import CONTEXT, Attachment, Budget, RunRequest
from loom_core.tools.depth import current_depth
from loom_core.tools.patterns import matcher
from loom_core.tools.schemas.form import schema_problem

__all__ = ["MAX_DEPTH", "RunOptions", "run_request"]

MAX_DEPTH = 3
"""Maximum nesting of agents: how many agents may be above another one, each started by a tool call."""


class RunOptions(TypedDict, total=False):
    """Options of a run besides its goal; see `RunRequest`.

    `context` is the caller's data about the run, such as the id of a customer: a JSON object, which is in
    the journal. Tools and instructions read it as `RunContext.data`; the model does not see it.

    `attachments` are files that the model reads with the goal: paths, URLs, or an `Attachment` of bytes.
    Images are for models that take them; of other files the model reads the text.
    """

    session_id: str
    budget: Budget
    allowed_tools: Sequence[str] | None
    idempotency_key: str
    caller: str
    metadata: Mapping[str, Any]
    context: Mapping[str, Any]
    attachments: Sequence[AttachmentSource]


_OPTIONS = frozenset(RunOptions.__annotations__)
_TEXTS = ("session_id", "idempotency_key", "caller")
_SHOWN = 200  # characters of what is refused


def run_request(
    goal: str,
    *,
    profile: str,
    budget: Budget,
    output_schema: type[BaseModel] | Mapping[str, Any] | None,
    options: RunOptions,
) -> RunRequest:
    """Build and validate the request for a run.

    Args:
        goal: the task.
        profile: name of the agent that works on it.
        budget: its budget, if the options have none.
        output_schema: schema of the final answer; see `Agent.run`.
        options: see there.

    Raises:
        InvalidInputError: an argument is invalid, or agents are nested too deeply.
    """
    schema = _validate(goal, output_schema, options)
    depth = current_depth()
    if depth > MAX_DEPTH:
        raise InvalidInputError(
            f"{depth} agents are above this one, each started by a tool call of the one before.",
            advice="Do the work here, without starting another agent.",
        )
    allowed = options.get("allowed_tools")
    return RunRequest(
        goal=goal,
        session_id=options.get("session_id", ""),
        profile=profile,
        budget=options.get("budget", budget),
        allowed_tools=None if allowed is None else tuple(allowed),
        output_schema=schema,
        idempotency_key=options.get("idempotency_key", ""),
        caller=options.get("caller", ""),
        depth=depth,
        metadata={**options.get("metadata", {}), **_context(options)},
        attachments=tuple(cast("Sequence[Attachment]", options.get("attachments") or ())),
    )


def _validate(goal: object, schema: object, options: Mapping[str, object]) -> Mapping[str, Any] | None:
    """Validate a request, and return the JSON Schema of its answer, if it has one.

    Raises:
        InvalidInputError: an argument is invalid.
    """
    if not isinstance(goal, str):
        raise InvalidInputError(
            f"The goal is {_shorten(goal)}, not a string.", advice="Give the task as text."
        )
    if not goal.strip():
        raise InvalidInputError("The goal is empty.", advice="Give the task as text.")
    if unknown := sorted(options.keys() - _OPTIONS):
        raise InvalidInputError(
            f"A run has no option {_shorten(unknown[0])}.",
            advice=f"There are: {', '.join(sorted(_OPTIONS))}.",
        )
    if not isinstance(options.get("budget", Budget()), Budget):
        raise InvalidInputError(
            f"`budget` is {_shorten(options['budget'])}.",
            advice="Give a `Budget`, such as `Budget(tokens=…)`.",
        )
    for name in _TEXTS:
        if not isinstance(given := options.get(name, ""), str):
            raise InvalidInputError(f"`{name}` is {_shorten(given)}, not a string.", advice="Give a string.")
    _check_patterns(options.get("allowed_tools"))
    if not all(map(is_loaded, cast("Sequence[object]", options.get("attachments") or ()))):
        raise InvalidInputError(
            "An attachment of the request is not loaded.", advice="Load it with `await load_attachments(…)`."
        )
    for name in ("metadata", "context"):
        if not isinstance(given := options.get(name, {}), Mapping):
            raise InvalidInputError(
                f"`{name}` is {_shorten(given)}, not an object.", advice="Give a dictionary of JSON values."
            )
        to_column(cast("Mapping[str, Any]", given))
    return _answer_schema(schema)


def _context(options: RunOptions) -> Mapping[str, Any]:
    return {CONTEXT: dict(given)} if (given := options.get("context")) else {}


def _check_patterns(allowed: object) -> None:
    if allowed is None:
        return
    if isinstance(allowed, str) or not isinstance(allowed, Collection):
        raise InvalidInputError(
            f"`allowed_tools` is {_shorten(allowed)}.", advice="Give a list of names or patterns."
        )
    for pattern in cast("Collection[object]", allowed):
        if not isinstance(pattern, str):
            raise InvalidInputError(
                f"`allowed_tools` contains {_shorten(pattern)}, not a string.",
                advice="Give names or patterns.",
            )
        try:
            matcher(pattern)
        except ConfigError as error:
            raise InvalidInputError(f"`allowed_tools`: {error.message}", advice=error.advice) from None


def _answer_schema(given: object) -> Mapping[str, Any] | None:
    if given is None:
        return None
    if isinstance(given, type) and issubclass(given, BaseModel):
        schema: Mapping[str, Any] = model_schema(given)
    elif isinstance(given, Mapping):
        schema = cast("Mapping[str, Any]", given)
    else:
        raise InvalidInputError(
            f"`output_schema` is {_shorten(cast('object', given))}.",
            advice="Give a Pydantic model, or a JSON Schema.",
        )
    if schema.get("type") != "object" and "$ref" not in schema:
        raise InvalidInputError(
            "The output schema does not describe an object; vendors accept only objects.",
            advice="Wrap the value in a property of an object.",
        )
    if problem := schema_problem(schema):
        raise InvalidInputError(f"The output schema {problem}.", advice="Correct it; see json-schema.org.")
    to_column(schema)
    check_schema(schema)
    return schema


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
