"""What a run is asked to do, looked at before it begins: a mistake is told where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, cast

from pydantic import BaseModel

from loom_core.agent.run import Budget, RunRequest
from loom_core.errors import InvalidInputError
from loom_core.tools.depth import current_depth
from loom_core.tools.schema_form import schema_problem

__all__ = ["DEEPEST", "RunOptions", "run_request"]

DEEPEST = 3
"""So many agents may stand above another one, each started by a tool of the one before."""


class RunOptions(TypedDict, total=False):
    """What a run may be given besides its goal; see `RunRequest`."""

    session_id: str
    budget: Budget
    allowed_tools: Sequence[str] | None
    idempotency_key: str
    caller: str
    metadata: Mapping[str, Any]


_OPTIONS = frozenset(RunOptions.__annotations__)


def run_request(
    goal: str,
    *,
    profile: str,
    budget: Budget,
    output_schema: type[BaseModel] | Mapping[str, Any] | None,
    options: RunOptions,
) -> RunRequest:
    """What a run is asked to do.

    Args:
        goal: what is wanted.
        profile: which agent works on it.
        budget: what it may take, where the options do not say it.
        output_schema: what the final answer has to fit; see `Agent.run`.
        options: see there.

    Raises:
        InvalidInputError: something is not what it should be, or agents have started each other too deeply.
    """
    schema = _checked(goal, output_schema, options)
    depth = current_depth()
    if depth > DEEPEST:
        raise InvalidInputError(
            f"{depth} agents stand above this one, each started by a tool of the one before.",
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
        metadata=options.get("metadata", {}),
    )


def _checked(goal: object, schema: object, options: Mapping[str, object]) -> Mapping[str, Any] | None:
    """Look at what a run is asked to do, and give the JSON Schema of its answer, if it has one.

    Raises:
        InvalidInputError: something is not what it should be.
    """
    if not isinstance(goal, str):
        raise InvalidInputError(f"The goal is {goal!r}, and no text.", advice="Say in words what is wanted.")
    if not goal.strip():
        raise InvalidInputError("The goal is empty.", advice="Say what is wanted.")
    if unknown := sorted(options.keys() - _OPTIONS):
        raise InvalidInputError(
            f"A run has no option {unknown[0]!r}.", advice=f"There are: {', '.join(sorted(_OPTIONS))}."
        )
    if not isinstance(options.get("budget", Budget()), Budget):
        raise InvalidInputError(
            f"`budget` is {options['budget']!r}.", advice="Give a `Budget`, such as `Budget(tokens=…)`."
        )
    if isinstance(options.get("allowed_tools"), str):
        raise InvalidInputError("`allowed_tools` is a text.", advice="Give a list of names or patterns.")
    return _answer_schema(schema)


def _answer_schema(given: object) -> Mapping[str, Any] | None:
    if given is None:
        return None
    if isinstance(given, type) and issubclass(given, BaseModel):
        schema: Mapping[str, Any] = given.model_json_schema()
    elif isinstance(given, Mapping):
        schema = cast("Mapping[str, Any]", given)
    else:
        raise InvalidInputError(
            f"`output_schema` is {given!r}.", advice="Give a Pydantic model, or a JSON Schema."
        )
    if schema.get("type") != "object" and "$ref" not in schema:
        raise InvalidInputError(
            "The values of the output schema are no objects, which vendors do not take.",
            advice="Make what is wanted a property of an object.",
        )
    if problem := schema_problem(schema):
        raise InvalidInputError(f"The output schema {problem}.", advice="Correct it; see json-schema.org.")
    return schema
