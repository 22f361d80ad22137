"""Result of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from pydantic import ValidationError

from loom_core.errors import InvalidInputError, LoomError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from loom_core.runs.run import Pending, Run, RunStatus, RunUsage

__all__ = ["RunError", "RunResult"]

_Structured = TypeVar("_Structured")


class RunError(LoomError):
    """A run did not reach its goal.

    Attributes:
        run_id: id of the run.
        status: its status.
        output: the answer so far.
    """

    def __init__(
        self, message: str, *, run_id: str, status: RunStatus, output: str, advice: str = ""
    ) -> None:
        super().__init__(message, advice=advice)
        self.run_id = run_id
        self.status: RunStatus = status
        self.output = output


@dataclass(frozen=True, slots=True)
class RunResult(Generic[_Structured]):
    """Result of a run.

    Attributes:
        run_id: for `Agent.resume` and the journal.
        session_id: pass it to the next run to continue the conversation.
        status: `completed`; `failed` or `aborted`, see `problem`; `paused` or `input_required` if it waits
            for a person.
        output: the final answer, or its beginning.
        structured: the final answer as data, if a schema was given and the run is completed; else None.
        problem: why it is not completed, and what to do.
        pending: its pending requests to people.
        spent: turns, calls, seconds, tokens and their price.
    """

    run_id: str
    session_id: str
    status: RunStatus
    output: str
    structured: _Structured | None
    problem: str
    pending: tuple[Pending, ...]
    spent: RunUsage

    @classmethod
    def of(cls, run: Run, *, model: type[BaseModel] | None = None) -> Self:
        """Return the result of a run in its current state.

        Args:
            run: the run.
            model: Pydantic model to validate the data with; None leaves them as they are. If they fit the
                model's schema, but its validators reject them, as those of a run that another process has
                completed, the result is `failed`.
        """
        data = cast("Mapping[str, Any] | None", run.structured)
        status, problem = run.status, run.problem
        try:
            read = data if model is None or data is None else model.model_validate(data)
        except ValidationError as error:
            found = "; ".join(each["msg"] for each in error.errors(include_url=False, include_context=False))
            read, status = None, "failed"
            problem = (
                f"The final answer fits the schema, but the model rejects it: {found}. State the other "
                "conditions in the goal, or in the schema."
            )
        return cls(
            run_id=run.id,
            session_id=run.request.session_id,
            status=status,
            output=run.output,
            structured=cast("_Structured | None", read),
            problem=problem,
            pending=run.pending,
            spent=run.spent,
        )

    @property
    def data(self) -> _Structured:
        """The final answer as data, of the type of the given schema; `structured` for completed runs.

        Raises:
            RunError: the run is not completed.
            InvalidInputError: the run has no schema, so its answer is a text: `output`.
        """
        structured = self.or_raise().structured
        if structured is None:
            raise InvalidInputError(
                "The run has no answer as data, as it was started without a schema.",
                advice="Give `output_schema`, or read `output`.",
            )
        return structured

    def or_raise(self) -> Self:
        """Return the result itself, if the run is completed.

        Raises:
            RunError: it is not.
        """
        if self.status != "completed":
            raise RunError(
                self.problem or f"The run waits for a person ({self.status}).",
                run_id=self.run_id,
                status=self.status,
                output=self.output,
            )
        return self

    def __str__(self) -> str:
        return self.output or self.problem
