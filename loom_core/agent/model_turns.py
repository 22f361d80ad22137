"""Having the model take its next turn: room is made for it, it is asked, and its answer is written down."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from loom_core.agent.conclusion import Nudge
from loom_core.agent.hooks import HookError, Veto, asked_hooks
from loom_core.agent.spending import calls_left
from loom_core.agent.system_prompt import own_prompt, system_prompt
from loom_core.agent.transcript import shortened
from loom_core.agent.turn import Turn
from loom_core.errors import LLMError
from loom_core.llm.interface import ChatOptions, ChatRequest, OutputSchema, ToolSpec
from loom_core.llm.messages import SystemMessage

if TYPE_CHECKING:
    from loom_core.agent.compaction import Compactor
    from loom_core.agent.parts import Parts
    from loom_core.agent.record import RunRecord
    from loom_core.llm.interface import LLMResponse

__all__ = ["ModelTurns"]

# What the user says while a run goes on outlasts every shortening: so many of the latest, so many characters.
_MOST_REPLIES = 20
_LONGEST_REPLY = 2000


class ModelTurns:
    """The model's side of one run."""

    def __init__(self, parts: Parts, record: RunRecord, *, schema: OutputSchema | None) -> None:
        """Set up.

        Args:
            parts: what drives the run.
            record: is told what happens.
            schema: what the final answer has to be.
        """
        self._parts = parts
        self._record = record
        self._schema = schema
        self._compactor: Compactor | None = None
        self._turn = Turn(parts.llm, record)

    @property
    def text(self) -> str:
        """What there is of an answer that is under way."""
        return self._turn.text if self._record.state.answer is None else ""

    async def take(self, nudge: Nudge, *, closing: str = "") -> None:
        """Have the model asked, and its answer written down.

        Args:
            nudge: why, if it is not plain.
            closing: why this is the last turn, without tools; else empty.

        Raises:
            LLMError: it gives no answer.
            HookError: a hook raised something, or does not want it asked.
        """
        specs = () if closing else self._specs()
        await self._make_room(specs)
        self._record.turn_begun(nudge.kind, nudge.text, model=self._parts.llm.model, closing=closing)
        try:
            response = await self._asked(nudge, specs)
        except LLMError as error:
            if error.failure != "too_long" or not await self._make_room(specs, now=True):
                raise
            response = await self._asked(nudge, specs)
        self._record.answered(response)
        for hooks in self._parts.hooks:
            await asked_hooks(hooks, "after_model", partial(hooks.after_model, self._record.run, response))

    def _specs(self) -> tuple[ToolSpec, ...]:
        record, request = self._record, self._record.run.request
        if not calls_left(request.budget, record.spent, granted_from=record.state.granted_from):
            return ()
        return self._parts.toolbox.specs(allowed=request.allowed_tools)

    async def _asked(self, nudge: Nudge, specs: tuple[ToolSpec, ...]) -> LLMResponse:
        # A vendor that is asked for JSON calls no tools any more: so it is as soon as there are none to call.
        wants_json = nudge.kind == "repair" or not specs
        options: ChatOptions = {"max_tokens": None, **self._parts.options}
        options["tools"] = () if nudge.kind == "repair" else specs
        options["output"] = self._schema if wants_json and not self._record.state.closing else None
        request = ChatRequest.of((await self._system(specs), *self._record.state.history), options)
        for hooks in self._parts.hooks:
            say = partial(hooks.before_model, self._record.run, request)
            said = await asked_hooks(hooks, "before_model", say)
            if isinstance(said, Veto):
                raise HookError(f"{type(hooks).__qualname__} does not want the model asked: {said.reason}")
            request = said
        return await self._turn.take(request)

    async def _system(self, specs: tuple[ToolSpec, ...]) -> SystemMessage:
        """The system prompt, which stays the same as long as the tools and the program's instructions do."""
        own = await own_prompt(self._parts.system_prompt, self._record.run)
        text = system_prompt(
            own, run=self._record.run, tools=specs, knowledge=self._parts.knowledge is not None
        )
        return SystemMessage(text)

    async def _make_room(self, specs: Sequence[ToolSpec], *, now: bool = False) -> bool:
        """Shorten the conversation where the window is nearly full, or `now`; returns whether it was."""
        if self._parts.compactor is None:
            return False
        if self._compactor is None:
            self._compactor = await self._parts.compactor()
        state, record = self._record.state, self._record
        conversation, taken = state.conversation(), len(state.inbox)
        fill = self._compactor.measure(conversation, reported=state.reported, tools=specs)
        due = "compaction" if now else self._compactor.due(fill)
        if due != "nothing" and not state.warned:
            record.filling(fill)
        if due != "compaction":
            return False
        for hooks in self._parts.hooks:
            say = partial(hooks.before_compaction, record.run, conversation)
            if await asked_hooks(hooks, "before_compaction", say) is not None:
                return False
        compacted = await self._compactor.compact(
            conversation,
            goal=record.run.request.goal,
            pinned=[shortened(each, _LONGEST_REPLY) for each in state.replies[-_MOST_REPLIES:]],
            fill=fill,
            spent=record.compacting_took,
        )
        if compacted is None:
            return False
        record.compacted(compacted, taken=taken)
        for hooks in self._parts.hooks:
            say = partial(hooks.after_compaction, record.run, compacted)
            await asked_hooks(hooks, "after_compaction", say)
        return True
