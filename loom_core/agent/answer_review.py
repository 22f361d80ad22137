"""Answer review: hooks replace, refuse or send back the final answer before anyone gets it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from loom_core.agent.hooks import AskAgain, GuardrailError, HookError, Veto, call_hook
from loom_core.agent.model_turns import FinalAnswer, Reprompt
from loom_core.llm.structured import read_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.agent.hooks import Hooks
    from loom_core.agent.notices import Notices
    from loom_core.agent.recorder import AgentRunRecorder
    from loom_core.llm.interface import OutputSchema

__all__ = ["AnswerReview"]


class AnswerReview:
    """Review of the answers of one run by its hooks.

    Args:
        hooks: the program's hooks, in order.
        record: records the outcome.
        schema: schema of the final answer.
        notices: texts for the model.
    """

    def __init__(
        self,
        hooks: Sequence[Hooks],
        record: AgentRunRecorder,
        *,
        schema: OutputSchema | None,
        notices: Notices,
    ) -> None:
        self._hooks = hooks
        self._record = record
        self._schema = schema
        self._notices = notices

    async def review(self, final: FinalAnswer) -> FinalAnswer | Reprompt:
        """Return the answer that ends the run, or the reprompt with which the model answers again.

        Raises:
            GuardrailError: a hook vetoed the answer, or sent it back too often.
            HookError: a hook raised an error, or its answer does not fit the schema.
        """
        record = self._record
        if record.state.reviewed is not None:  # before a crash
            return FinalAnswer(**record.state.reviewed)
        replacing = ""
        if final.structured is not None and any(hooks.reviews_answers for hooks in self._hooks):
            alone = json.dumps(dict(final.structured), ensure_ascii=False)  # without the words around it
            final = replace(final, output=alone)
        for hooks in self._hooks:
            said = await call_hook(hooks, "before_answer", hooks.before_answer, record.run, final.output)
            name = type(hooks).__qualname__
            match said:
                case Veto():
                    raise self._refuse(name, said.reason)
                case AskAgain():
                    if record.state.nudges["rejected"] >= said.most:
                        raise self._refuse(name, said.message)
                    record.record_rejected_answer(name, said.message)
                    return Reprompt("rejected", said.message)
                case str():
                    final, replacing = self._replace(name, said), name
                case None:
                    pass
        if replacing:
            record.record_replaced_answer(replacing, final.output, final.structured)
        return final

    async def review_unfinished(self, text: str) -> str:
        """Return as much of the output of a run without a final answer as the hooks let through."""
        for hooks in self._hooks if text else ():
            try:
                said = await call_hook(hooks, "before_answer", hooks.before_answer, self._record.run, text)
            except HookError:
                return ""
            if isinstance(said, Veto | AskAgain):
                return ""
            text = text if said is None else said
        return text

    def _replace(self, name: str, text: str) -> FinalAnswer:
        if self._schema is None:
            return FinalAnswer(text)
        value, wrong = read_value(text, self._schema)
        if value is None:
            raise HookError(
                f"The hook {name}.before_answer returned an answer that does not fit the schema: "
                f"{'; '.join(wrong)}"
            )
        return FinalAnswer(text, value)

    def _refuse(self, name: str, reason: str) -> GuardrailError:
        """Record that the answer is refused, and return the error; the conversation keeps only the reason."""
        self._record.record_refused_answer(name, reason, notice=self._notices.withheld.format(reason=reason))
        return GuardrailError(f"The answer was refused: {reason}", advice="Rephrase the goal.")
