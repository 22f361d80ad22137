"""Guardrails of a profile: personal data, denied patterns, and the form of answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from loom_core.errors import LoomError
from loom_core.llm.json_schema.values import check_schema
from loom_core.pii import PII_KINDS, PiiKind
from loom_core.tools.patterns import text_search

if TYPE_CHECKING:
    from typing import Self

    from loom_core.agent.hooks import Hooks

__all__ = ["DeniedPattern", "GuardrailsConfig"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class DeniedPattern(_Section):
    """A regular expression that must not match."""

    pattern: str = Field(
        min_length=1, description="The expression, in the syntax of RE2; `(?i)` ignores case."
    )
    message: str = Field(
        min_length=1,
        description="Why, and what to do, in a sentence: for the user, or for the model.",
    )
    on: list[Literal["input", "calls", "results", "answer"]] = Field(
        default=["input", "answer"],
        description="Where: the goal and messages of the user, arguments of tool calls, their results, the "
        "final answer.",
    )
    most: int = Field(
        default=1,
        ge=0,
        le=10,
        description="How many answers of a run the model corrects; with one more, the run fails.",
    )

    @model_validator(mode="after")
    def _is_usable(self) -> Self:
        try:
            text_search(self.pattern)
        except LoomError as error:
            raise ValueError(error.message) from None
        return self


class GuardrailsConfig(_Section):
    """Guardrails: personal data, patterns and answers that do not pass."""

    pii: list[PiiKind] | Literal["all"] = Field(
        default=[],
        description="Kinds of personal data that placeholders such as `[email]` take the place of, or `all`: "
        "`id_number`, `card`, `iban`, `email`, `phone`.",
    )
    pii_on: list[Literal["input", "results", "answer"]] = Field(
        default=["input", "results", "answer"],
        description="Where: the goal and messages of the user, results of tools, the final answer.",
    )
    deny: list[DeniedPattern] = Field(default=[], description="Patterns that must not match.")
    answer_schema: dict[str, Any] | None = Field(
        default=None,
        description="JSON Schema of final answers; the model corrects one that does not fit, once.",
    )

    @model_validator(mode="after")
    def _is_usable(self) -> Self:
        try:
            check_schema(self.answer_schema or {})
        except LoomError as error:
            raise ValueError(error.message) from None
        return self

    def hooks(self) -> list[Hooks]:
        """Create the hooks: patterns see the text before personal data are redacted."""
        from loom_core.agent.guardrails import AnswerValidator, DenyPattern, PiiRedaction

        hooks: list[Hooks] = [
            DenyPattern(each.pattern, each.message, on=each.on, most=each.most) for each in self.deny
        ]
        if self.answer_schema is not None:
            hooks.append(AnswerValidator(self.answer_schema))
        if self.pii:
            hooks.append(PiiRedaction(PII_KINDS if self.pii == "all" else self.pii, on=self.pii_on))
        return hooks
