"""Agent loop: executes a run from its journaled state to its end; prefetch, review and end of a run."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio

from loom_core.agent.calling_run import USAGE_KEY, CallingRun, calling_from, calling_run
from loom_core.agent.hooks import AskAgain, GuardrailError, HookError, Veto, call_hook, review_input
from loom_core.agent.model_turns import FinalAnswer, ModelTurns, Reprompt, conclude
from loom_core.agent.notices import Notices
from loom_core.agent.recorder import AgentRunRecorder
from loom_core.agent.spending import BudgetError, find_exhausted_limit
from loom_core.agent.tool_round import CallReview, LoopStoppedError, ToolRound
from loom_core.agent.user_memory.recall import recall_notes
from loom_core.errors import LLMError, LoomError
from loom_core.llm.interface import OutputSchema
from loom_core.llm.messages import AssistantMessage, TextPart, UserMessage
from loom_core.llm.structured import read_value
from loom_core.observability.spans import INVOKE_AGENT
from loom_core.runs.executor import RunExecutor
from loom_core.runs.run import Run, RunUsage
from loom_core.tools.calls import UNKNOWN_TOOL, CallResult
from loom_core.tools.execution.call_run import CLEANUP_SECONDS, abandon_call
from loom_core.tools.interface import CallContext, ToolOutput
from loom_core.tools.permission.permissions import UnapprovedToolError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anyio.abc import TaskGroup

    from loom_core.agent.hooks import Hooks
    from loom_core.agent.parts import AgentParts
    from loom_core.agent.recorder import OpenCall
    from loom_core.knowledge.sources.context_retriever import ContextRetriever
    from loom_core.llm.messages import Message, UserPart
    from loom_core.runs.commands import Abort, Command
    from loom_core.runs.executor import HumanBroker
    from loom_core.runs.journal import RunLog

__all__ = ["AnswerReview", "Prefetch", "RunFinalizer", "RunLoop"]


class RunLoop(RunExecutor[AgentRunRecorder]):
    """Agent loop: executes one agent run, whose log this process holds.

    It is a state machine: the next action follows from the state, and the state from the journaled events;
    so it resumes after a crash where it stopped. An interrupted turn of the model is repeated; a call with a
    result is not; a call that was running is repeated if that is harmless, else people are asked.

    A pause lets the current turn or the running calls finish, and starts nothing new; the run does not end
    either. An abort cancels running work; every open call gets a result that says so.
    """

    span_form = INVOKE_AGENT

    def __init__(self, parts: AgentParts, log: RunLog) -> None:
        """Create the executor of a run.

        Args:
            parts: the components of the agent.
            log: the log of the claimed run.
        """
        record = AgentRunRecorder(log, streams_text=not any(each.reviews_answers for each in parts.hooks))
        super().__init__(log, record, asking=parts.asking)
        request = log.run.request
        schema = request.output_schema
        self._parts = parts
        self._notices = Notices.for_goal(request.goal)
        self._schema = None if schema is None else OutputSchema("answer", schema, is_described=True)
        self._model = ModelTurns(parts, self._record, schema=self._schema)
        self._review = AnswerReview(parts.hooks, record, schema=self._schema, notices=self._notices)
        self._ending = RunFinalizer(parts, self._record, self._model, self._notices, self._review)
        self._calling = CallingRun(self._record, parts.asking)
        self._prequery: Prefetch | None = None
        self._tools: ToolRound | None = None

    async def execute(self) -> Run:
        """See `RunExecutor.execute`."""
        outer = calling_run()
        with calling_from(self._calling), nullcontext() if outer is None else outer.attach_child(self.detach):
            return await super().execute()

    async def _wait_for_calls(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._calling.detach)
            if self._tools is not None:
                group.start_soon(self._tools.detach)

    async def _start(self) -> None:
        request = self._record.run.request
        history = await self._parts.memory.messages(request.session_id) or self._parts.history
        parts = [
            await self._review_part(part) for part in (*self._record.state.attached, TextPart(request.goal))
        ]
        self._record.record_start([*history, UserMessage(tuple(parts))], model=self._parts.llm.model)

    async def _review_part(self, part: UserPart) -> UserPart:
        """Let the hooks change or veto a text of the user; an image stays as it is."""
        if not isinstance(part, TextPart):
            return part
        return TextPart(await review_input(self._parts.hooks, self._record.run, part.text))

    def _revive(self, order: Command) -> None:
        state = self._record.state
        answered = state.answer is not None and not state.calls
        replied = self._record.run.status == "completed"
        self._record.record_resume(order.by, text=self._notices.resumed if answered and not replied else "")

    def _start_prefetch(self, group: TaskGroup) -> None:
        state, retriever, self._prequery = self._record.state, self._parts.knowledge, None
        if retriever is not None and not state.turns and not state.looked:
            self._prequery = Prefetch(retriever, self._record, late=self._notices.late)
            self._prequery.start(group, state.goal, state.history[:-1])

    async def _recall_notes(self) -> None:
        """Put the notes about the user before the goal."""
        state, memory = self._record.state, self._parts.user_memory
        if memory is not None and not state.turns:
            texts = [message.text for message in state.history]
            found = await recall_notes(memory, self._record.run, texts)
            if found.text or found.problem:
                self._record.record_passages(found, late="")

    def _tool_round(self, people: HumanBroker) -> ToolRound:
        """Create the tool round, with the calls and approvals from before a resume."""
        state = self._record.state
        guard = None if self._parts.guard is None else self._parts.guard()
        if guard is not None:
            guard.replay(state.conversation_of_run())
        pipeline = self._parts.pipeline(self._record.run)
        for approved in state.approved:
            pipeline.remember(approved)
        review = CallReview(
            record=self._record,
            pipeline=pipeline,
            people=people,
            guard=guard,
            hooks=self._parts.hooks,
            notices=self._notices,
            retries=self._parts.retries,
        )
        return ToolRound(review, gate=self._wait_while_paused, deps=self._parts.deps)

    async def _advance(self, people: HumanBroker, group: TaskGroup) -> None:
        if not self._record.state.history:
            await self._start()
        self._start_prefetch(group)
        await self._recall_notes()
        record = self._record
        state = record.state
        tools = self._tools = self._tool_round(people)
        while True:
            await self._wait_while_paused()
            if state.closing and state.answer is not None:
                raise BudgetError(state.closing)
            if state.open_calls:
                await tools.run()
                continue
            nudge = Reprompt()
            if (following := self._conclude()) is not None:
                if isinstance(following, FinalAnswer):
                    following = await self._review.review(following)
                if isinstance(following, FinalAnswer):
                    if await self._finish(following):
                        return
                    continue
                nudge = following
            elif state.nudge != "none" and not state.inbox:  # repeat an interrupted turn
                nudge = Reprompt(state.nudge)
            elif self._prequery is not None and not state.turns:
                await self._prequery.wait_briefly()
            await self._turn(nudge)

    def _conclude(self) -> FinalAnswer | Reprompt | None:
        """Conclude from the last answer, or from a call that ends the run; None if the work goes on."""
        state = self._record.state
        if state.final is not None and not state.has_news:
            return FinalAnswer(**state.final)
        if state.answer is not None and not state.calls:
            return conclude(state, schema=self._schema, model=self._parts.answer_model, notices=self._notices)
        return None

    async def _review_messages(self) -> None:
        """Let the hooks change or veto the messages of the user that the model has not read yet."""
        record = self._record
        unread = record.state.replies[len(record.state.replies) - record.state.unread :]
        texts = [await review_input(self._parts.hooks, record.run, text) for text in unread]
        if texts != unread:
            record.record_replaced_messages(texts)

    async def _turn(self, nudge: Reprompt) -> None:
        if self._parts.hooks and self._record.state.unread:
            await self._review_messages()
        state, budget = self._record.state, self._record.run.request.budget
        closing = state.closing
        spent = find_exhausted_limit(budget, self._record.spent, granted_from=state.granted_from)
        if spent is not None and not closing:
            answered = state.answer is not None and not state.calls
            if answered or not (spent.closing and state.turns):
                raise BudgetError(spent.problem)
            closing = spent.problem
            nudge = Reprompt("closing", self._notices.closing.format(problem=spent.problem))
        await self._model.run_turn(nudge, closing=closing)

    async def _finish(self, final: FinalAnswer) -> bool:
        """End with an answer, unless a command came meanwhile; return whether the run has ended."""
        if self._prequery is not None:
            self._prequery.stop()
        record = self._record
        await self._ending.save_conversation()
        await self._ending.learn_notes()
        await record.commit()
        self._apply_commands()  # commands sent before the end must not be lost
        if record.paused or record.state.has_news or self._abort is not None:
            await record.commit()
            return False
        record.record_finish(final.output, final.structured)
        return True

    async def _end_aborted(self, abort: Abort) -> None:
        await self._ending.finish_aborted(abort)

    async def _fail(self, error: LoomError) -> None:
        await self._ending.finish_failed(error)

    def _timeout_error(self) -> BudgetError:
        spent = find_exhausted_limit(
            self._record.run.request.budget,
            self._record.spent,
            granted_from=self._record.state.granted_from,
        )
        return BudgetError(spent.problem if spent else "The run has used all of its time.")


_PREFETCH_SECONDS = 0.3


@dataclass(slots=True)
class Prefetch:
    """Prefetch: retrieves passages for the goal, concurrently with the first turn.

    The first turn waits up to 0.3 s for it. Passages that come later are added before the next turn. If the
    first answer is the final one, the run ends with it, unless passages came while it was written; then
    the model is asked once more.

    Attributes:
        retriever: finds the passages, within its own timeout.
        record: records them.
        late: note after passages that come when the model has already started.
    """

    retriever: ContextRetriever
    record: AgentRunRecorder
    late: str
    _done: anyio.Event = field(default_factory=anyio.Event, init=False)
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope, init=False)

    def start(self, group: TaskGroup, goal: str, conversation: Sequence[Message]) -> None:
        """Start the retrieval."""
        group.start_soon(self._retrieve, goal, [message.text for message in conversation])

    async def wait_briefly(self) -> None:
        """Wait a short time for the passages."""
        with anyio.move_on_after(_PREFETCH_SECONDS):
            await self._done.wait()

    def stop(self) -> None:
        """Cancel the retrieval: the passages are not needed any more."""
        self._scope.cancel()

    async def _retrieve(self, goal: str, conversation: Sequence[str]) -> None:
        try:
            with self._scope:
                found = await self.retriever.context_for(goal, conversation=conversation)
                self.record.record_passages(found, late=self.late)
        finally:
            self._done.set()


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunFinalizer:
    """Finalizes a run that was aborted or has failed, so that its session can continue.

    Every call gets a result, and the conversation is saved to the memory.

    Attributes:
        parts: the components of the agent.
        record: records the end.
        model: has the text of an unfinished answer.
        notices: texts about an abort, and about calls that were not made or were interrupted.
        review: reviews what there is of an answer.
    """

    parts: AgentParts
    record: AgentRunRecorder
    model: ModelTurns
    notices: Notices
    review: AnswerReview

    async def finish_aborted(self, abort: Abort) -> None:
        """Finish a run that was aborted."""
        await self._close_calls(self.notices.translate(abort.reason))
        await self._try_to_save()
        problem, output = self.notices.describe_abort(by=abort.by, reason=abort.reason), await self._output()
        self.record.record_abort(by=abort.by, reason=abort.reason, problem=problem, output=output)

    async def finish_failed(self, error: LoomError) -> None:
        """Finish a run that failed."""
        if isinstance(error, UnapprovedToolError):
            _log.warning("run %s has failed: %s", self.record.run.id, error)
        await self._close_calls(error.message)
        await self._try_to_save()
        if isinstance(error, UnapprovedToolError):
            said = error.said
        else:
            said = "" if isinstance(error, GuardrailError) else await self._output()
        self.record.record_failure(error, failure=_failure(error), output=said)

    async def save_conversation(self) -> None:
        """Save the conversation to the memory, unless the run never began."""
        state = self.record.state
        if state.history:
            await self.parts.memory.replace(self.record.run.request.session_id, state.conversation())

    async def _try_to_save(self) -> None:
        """Save the conversation; log any error, as the run must end whatever a program's memory raises."""
        try:
            await self.save_conversation()
        except Exception as error:  # noqa: BLE001 - see above
            _log.warning("the conversation of run %s is not saved: %s", self.record.run.id, error)

    async def learn_notes(self) -> None:
        """Extract notes about the user from what they wrote in the run; this time does not count for it."""
        record, memory = self.record, self.parts.user_memory
        if memory is None:
            return
        record.stopwatch.stop()
        said = [record.state.goal, *record.state.replies]
        usage = await memory.learn(record.run, said, self.parts.llm)
        if usage is not None:
            record.add_compaction_usage(usage)
        if record.run.status == "working":
            record.stopwatch.start()

    async def _close_calls(self, reason: str) -> None:
        """End the work that still goes on for open calls, and give them results, so that one can continue."""
        for call in self.record.state.open_calls:
            spent = await self._abandon_call(call) if call.started else None
            self.record.record_call_end(self._close_call(call, reason), spent=spent)

    async def _abandon_call(self, call: OpenCall) -> RunUsage | None:
        """Abandon a started call; return the resources that its child runs have used."""
        context = CallContext(run_id=self.record.run.id, call_id=call.part.id, task_id=call.task_id)
        left = await abandon_call(self.parts.toolbox, call.part.name, context)
        return spent if isinstance(spent := left.get(USAGE_KEY), RunUsage) else None

    def _close_call(self, call: OpenCall, reason: str) -> CallResult:
        template = self.notices.stopped if call.running else self.notices.not_run
        output = ToolOutput(template.format(reason=reason).strip(), is_error=True)
        return CallResult(
            call_id=call.part.id,
            tool=call.part.name if call.started else UNKNOWN_TOOL,  # the name was not checked yet
            status="aborted",
            output=output,
            message=output.message(call.part.id),
            stages={},
        )

    async def _output(self) -> str:
        """Return the text of the answer so far, as far as the hooks let it through."""
        state = self.record.state
        text = state.prefix + self.model.text or state.output
        if not text:
            said = (each.text for each in reversed(state.history) if isinstance(each, AssistantMessage))
            text = next(filter(None, said), "")
        return await self.review.review_unfinished(text)


_FAILURES: Mapping[type[LoomError], str] = {
    BudgetError: "budget",
    LoopStoppedError: "loop",
    HookError: "hook",
    GuardrailError: "guardrail",
    UnapprovedToolError: "unapproved",
}


def _failure(error: LoomError) -> str:
    if isinstance(error, LLMError):
        return error.failure
    return next((name for kind, name in _FAILURES.items() if isinstance(error, kind)), "other")


@dataclass(frozen=True, slots=True)
class AnswerReview:
    """Review of the answers of one run by its hooks.

    Attributes:
        hooks: the program's hooks, in order.
        record: records the outcome.
        schema: schema of the final answer.
        notices: texts for the model.
        seconds: timeout of the hooks when the run has ended without a final answer.
    """

    hooks: Sequence[Hooks]
    record: AgentRunRecorder
    schema: OutputSchema | None
    notices: Notices
    seconds: float = CLEANUP_SECONDS

    async def review(self, final: FinalAnswer) -> FinalAnswer | Reprompt:
        """Return the answer that ends the run, or the reprompt with which the model answers again.

        Raises:
            GuardrailError: a hook vetoed the answer, or sent it back too often.
            HookError: a hook raised an error, or its answer does not fit the schema.
        """
        record = self.record
        if final.is_handoff:
            return final
        if record.state.reviewed is not None:  # before a crash
            return FinalAnswer(**record.state.reviewed)
        replacing = ""
        if final.structured is not None and any(hooks.reviews_answers for hooks in self.hooks):
            alone = json.dumps(dict(final.structured), ensure_ascii=False)  # without the words around it
            final = replace(final, output=alone)
        for hooks in self.hooks:
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
        """Return as much of the output of a run without a final answer as the hooks let through in time."""
        for hooks in self.hooks if text else ():
            try:
                with anyio.fail_after(self.seconds):
                    said = await call_hook(hooks, "before_answer", hooks.before_answer, self.record.run, text)
            except (HookError, TimeoutError):
                return ""
            if isinstance(said, Veto | AskAgain):
                return ""
            text = text if said is None else said
        return text

    def _replace(self, name: str, text: str) -> FinalAnswer:
        if self.schema is None:
            return FinalAnswer(text)
        value, wrong = read_value(text, self.schema)
        if value is None:
            raise HookError(
                f"The hook {name}.before_answer returned an answer that does not fit the schema: "
                f"{'; '.join(wrong)}"
            )
        return FinalAnswer(text, value)

    def _refuse(self, name: str, reason: str) -> GuardrailError:
        """Record that the answer is refused, and return the error; the conversation keeps only the reason."""
        self.record.record_refused_answer(name, reason, notice=self.notices.withheld.format(reason=reason))
        return GuardrailError(f"The answer was refused: {reason}", advice="Rephrase the goal.")
