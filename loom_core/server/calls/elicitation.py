"""Elicitation: ask the user through the client, with a deadline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from mcp.server.elicitation import render_elicitation_schema
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult
from pydantic import BaseModel, ValidationError

from loom_core.errors import InvalidInputError, LoomError
from loom_core.json_repair import well_formed
from loom_core.server.calls.client_input import InputUnavailableError
from loom_core.tools.schemas.form import schema_problem

if TYPE_CHECKING:
    from loom_core.server.calls.context import ToolContext

__all__ = [
    "DEADLINE",
    "ConsentError",
    "ElicitationResult",
    "FormResult",
    "Outcome",
    "ask",
    "ask_form",
    "can_ask",
    "consent",
    "form_of",
]

DEADLINE = 300.0
"""Default timeout of an answer, in seconds."""

_SCHEMA_KEYWORDS = ("type", "properties", "required")  # all that the protocol allows in a form's schema
_FIELD_KEYWORDS = frozenset(
    "type title description default enum enumNames oneOf items minLength maxLength format minimum maximum "
    "minItems maxItems".split()
)
_FIELD_TYPES = {"string", "number", "integer", "boolean", "array"}
_FIELD_FORMATS = {"email", "uri", "date", "date-time"}

Outcome = Literal["accepted", "declined", "cancelled", "timed_out", "unavailable"]
"""Outcome of an elicitation: answered, refused, closed without an answer, timed out, not asked."""

ModelT = TypeVar("ModelT", bound=BaseModel)
ModelT_co = TypeVar("ModelT_co", bound=BaseModel, covariant=True)


@dataclass(frozen=True, slots=True)
class ElicitationResult(Generic[ModelT_co]):
    """Result of an elicitation.

    Attributes:
        outcome: outcome of the question.
        value: the form's values; None unless it was accepted.
    """

    outcome: Outcome
    value: ModelT_co | None = None


@dataclass(frozen=True, slots=True)
class FormResult:
    """Result of an elicitation with a form that is a JSON Schema.

    Attributes:
        outcome: outcome of the question.
        content: the form's values, not validated; empty unless it was accepted.
    """

    outcome: Outcome
    content: Mapping[str, Any] = field(default_factory=dict[str, Any])


class ConsentError(LoomError):
    """The user has not agreed, so nothing was done.

    Attributes:
        outcome: outcome of the question; never `accepted`.
    """

    def __init__(self, message: str, *, advice: str, outcome: Outcome) -> None:
        super().__init__(message, advice=advice)
        self.outcome: Outcome = outcome


class _Nothing(BaseModel):
    """An empty form: to accept it is the answer."""


def can_ask(ctx: ToolContext) -> bool:
    """Return whether the client of a call can show a form to its user."""
    declared = ctx.capabilities.elicitation
    forms = declared is not None and (declared.form is not None or declared.url is None)
    return forms and ctx.client_input.available


async def ask(
    ctx: ToolContext, message: str, model: type[ModelT], *, name: str = "answer", deadline: float = DEADLINE
) -> ElicitationResult[ModelT]:
    """Ask the user to fill in a form.

    The function that asks may run again from its beginning with the answer (see `client_input`): it must ask
    before it changes anything. A repeated question in the same call needs another name.

    Args:
        ctx: the call.
        message: the question, for people.
        model: the form: only text, number, boolean and choice fields.
        name: name of the question, unique in the call.
        deadline: timeout of the answer, in seconds.

    Raises:
        InvalidInputError: the client's answer does not match the form.
        TypeError: the model cannot be a form.
    """
    given = await ask_form(ctx, message, _form(model), name=name, deadline=deadline)
    if given.outcome != "accepted":
        return ElicitationResult(given.outcome)
    try:
        return ElicitationResult("accepted", model.model_validate(given.content))
    except ValidationError as error:
        wrong = ", ".join(str(detail["loc"][0]) for detail in error.errors() if detail["loc"])
        raise InvalidInputError(
            f"The client's answer to “{message}” does not fit the question: {wrong or 'not a form'}.",
            advice="Ask the user in the conversation.",
        ) from error


async def ask_form(
    ctx: ToolContext, message: str, schema: Mapping[str, Any], *, name: str, deadline: float = DEADLINE
) -> FormResult:
    """Ask the user to fill in a form that is a JSON Schema; see `ask`.

    Args:
        ctx: the call.
        message: the question, for people.
        schema: JSON Schema of the form, an object of plain properties; empty for one without any.
        name: as for `ask`.
        deadline: as for `ask`.
    """
    if not can_ask(ctx):
        return FormResult("unavailable")
    request = ElicitRequest(
        params=ElicitRequestFormParams(
            message=well_formed(message), requested_schema=well_formed(_form_schema(schema))
        )
    )
    try:
        responses = await ctx.client_input.fetch({name: request}, deadline=deadline)
    except TimeoutError:
        return FormResult("timed_out")
    except InputUnavailableError:
        return FormResult("unavailable")
    response = responses[name]
    if not isinstance(response, ElicitResult) or response.action == "cancel":
        return FormResult("cancelled")
    if response.action == "decline":
        return FormResult("declined")
    return FormResult("accepted", response.content or {})


def form_of(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Build the form for a JSON Schema; None if no form can express it, or it is not a valid schema.

    Forms know plain fields only, and few keywords: the caller has to check all others.

    Args:
        schema: of an object, or empty for a form without fields; it may come from another server.
    """
    if schema_problem(schema):
        return None
    fields: dict[str, Any] = {}
    for name, part in schema.get("properties", {}).items():
        field = _field(part)
        if field is None:
            return None
        fields[name] = field
    return _form_schema({**schema, "properties": fields})


def _field(part: object) -> dict[str, Any] | None:
    """Build a field of a form; None if a form cannot express it."""
    if not isinstance(part, Mapping):
        return None
    known = cast("Mapping[str, Any]", part)
    field = {word: value for word, value in known.items() if word in _FIELD_KEYWORDS}
    if "enum" in field:
        if not all(isinstance(choice, str) for choice in field["enum"]):
            return None
        field.setdefault("type", "string")
    if "oneOf" in field:
        forms = cast("Sequence[object]", field["oneOf"])
        choices = [cast("Mapping[str, Any]", each) for each in forms if isinstance(each, Mapping)]
        if len(choices) < len(forms) or not all(isinstance(each.get("const"), str) for each in choices):
            return None
        field["oneOf"] = [{"title": each["const"], **each} for each in choices]
        field.setdefault("type", "string")
    kind = field.get("type")
    if not isinstance(kind, str) or kind not in _FIELD_TYPES:
        return None
    if kind == "array" and not {"enum", "anyOf"} & set(field.get("items", ())):
        return None  # the only lists in forms are multiple choices
    if field.get("format", "date") not in _FIELD_FORMATS:
        del field["format"]
    return field


async def consent(
    ctx: ToolContext,
    question: str,
    *,
    confirmed: bool,
    otherwise: str,
    name: str = "consent",
    deadline: float = DEADLINE,
) -> None:
    """Go on only if the user agrees: an empty form, which is accepted or declined.

    Args:
        ctx: the call.
        question: what the user agrees to, for people.
        confirmed: whether the model says that the user has agreed. It counts only if the client cannot ask:
            otherwise a prompt injection could agree for the user.
        otherwise: how to call again once the user has agreed in the conversation, for a model whose client
            cannot ask: “call `add` again with confirm: true”.
        name: as for `ask`.
        deadline: as for `ask`.

    Raises:
        ConsentError: they have not agreed; it says why, and what the model should do.
    """
    answer = await ask(ctx, question, _Nothing, name=name, deadline=deadline)
    match answer.outcome:
        case "accepted":
            return
        case "declined":
            message, advice = "The user said no; nothing was done.", "Try again only if they ask for it."
        case "cancelled":
            message, advice = "The user closed the question; nothing was done.", "Ask them what they want."
        case "timed_out":
            message = f"The user did not answer within {deadline:g} s; nothing was done."
            advice = "Call again when they are there: they are asked again."
        case "unavailable" if confirmed:
            return
        case "unavailable":
            message = f"Nothing was done yet, for the user has to agree first: {question}"
            advice = f"Ask them; if they agree, {otherwise}."
    raise ConsentError(message, advice=advice, outcome=answer.outcome)


def _form(model: type[BaseModel]) -> dict[str, Any]:
    return _form_schema(render_elicitation_schema(model))


def _form_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    allowed = {word: schema[word] for word in _SCHEMA_KEYWORDS if word in schema}
    return {"type": "object", "properties": {}, **allowed}
