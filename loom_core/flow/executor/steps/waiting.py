"""Steps that wait: for a value, a choice or a yes of the user, for an operator, an event or a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from time import time
from typing import TYPE_CHECKING, Any

from loom_core.errors import InvalidInputError
from loom_core.flow.executor.inputs import names_input, validate_inputs, with_properties
from loom_core.flow.executor.state import Frame
from loom_core.flow.executor.steps.context import RunScope, StepOutcome
from loom_core.flow.expressions import fill, text_of
from loom_core.flow.responses.phrases import Phrases, format_value
from loom_core.flow.understanding.choices import (
    OFFERED,
    SHOWN,
    choices_of,
    choices_schema,
    choices_text,
    find_choices,
    properties_of,
)
from loom_core.flow.understanding.moments import zone_of
from loom_core.runs.run import Pending

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig
    from loom_core.flow.config.models_step import (
        AskConfig,
        ConfirmConfig,
        HandoverConfig,
        OptionsConfig,
        StepConfig,
        WaitConfig,
    )
    from loom_core.flow.understanding.choices import ValueChoice

__all__ = ["ask_user", "confirm_step", "wait_outside"]


def _is_input_given(name: str, inputs: Mapping[str, Any], properties: Mapping[str, Any]) -> bool:
    """Return whether the user gave an input before a step asks for it; a default does not count."""
    return bool(name) and name in inputs and inputs[name] != properties.get(name, {}).get("default")


def _answer_schema(name: str, wanted: object, flow: FlowConfig) -> dict[str, Any]:
    """Return the schema of an answer of one value."""
    schema = {"type": "object", "properties": {name: wanted}, "required": [name]}
    return schema | {each: flow.input_schema[each] for each in ("$defs",) if each in flow.input_schema}


def _find_choice(value: object, choices: Sequence[ValueChoice]) -> list[ValueChoice]:
    """Return the choices that a value, or a text of the user, may mean."""
    found = [each for each in choices if each.value == value]
    return find_choices(value, choices) if isinstance(value, str) and not found else found


def _is_answer_kept(ask: AskConfig, step: StepConfig, frame: Frame) -> bool:
    """Return whether a correction of other inputs leaves an answer as it is.

    It does not if the user has given the answer to this question, and the question is another one now.
    """
    place = frame.rewound.get(step.step_id)
    if place is None or ask.options is not None:  # choices are offered again unless they have the answer
        return place is not None
    is_answered_here = frame.given.get(ask.into, -1) >= place and ask.into not in frame.corrected
    is_other = "$steps" in ask.question or any(names_input(ask.question, name) for name in frame.corrected)
    return not (is_answered_here and is_other)


async def ask_user(scene: RunScope, frame: Frame, step: StepConfig, ask: AskConfig) -> StepOutcome:
    """Ask until an answer is valid; it may correct inputs that no step has used yet."""
    state = scene.record.state
    scope = state.frames[frame.scope]
    flow = scene.flow_of(frame)
    name = ask.into or "answer"
    properties = properties_of(flow.input_schema)
    is_first = not state.visited[frame.key + step.step_id] or _is_answer_kept(ask, step, frame)
    given = is_first and _is_input_given(ask.into, scope.inputs, properties)
    scene.enter(frame, step, "")
    if ask.options is not None:
        known = scope.inputs[ask.into] if given else None
        return await _ask_choice(scene, frame, step, ask, ask.options, known=known)
    if given:
        value = scope.inputs[ask.into]
        return StepOutcome.of(value, answer=value)
    wanted = ask.answer if ask.answer is not None else properties.get(ask.into, {"type": "string"})
    schema = _answer_schema(name, wanted, flow)
    problem = ""
    while True:
        content, problem = await _request(scene, frame, step, ask, schema, problem=problem)
        if content is None:
            return StepOutcome(status="declined", problem=scene.wording.declined)
        if name in content and not problem:
            value = content[name]
            if ask.into:
                scene.record.record_inputs(frame, {ask.into: value})
            return StepOutcome.of(value, answer=value)
        scene.record.record_inputs(frame, {}, answered=state.key_of(frame, step.step_id))


async def _ask_choice(
    scene: RunScope,
    frame: Frame,
    step: StepConfig,
    ask: AskConfig,
    options: OptionsConfig,
    *,
    known: Any,  # noqa: ANN401 - JSON
) -> StepOutcome:
    """Ask for one of the choices of a list; words that fit several of them narrow it down.

    `known` is the value that the user gave before; None for none.
    """
    wording, state = scene.wording, scene.record.state
    flow, phrases = scene.flow_of(frame), Phrases(wording.language)
    choices = scene.choices(frame, options)
    if not choices:
        said = scene.text(frame, options.none) or wording.no_choices
        return StepOutcome(status="failure", problem="There is nothing to choose from.", said=said)
    name, key = ask.into or "answer", state.key_of(frame, step.step_id)
    title = with_properties(flow.input_schema, {name: {}})["properties"][name]
    found, before = _find_choice(known, choices), ""
    if known is not None and len(found) != 1:
        before = wording.several if found else phrases.unoffered.format(said=format_value(known))
    while len(found) != 1:
        asked = found or choices
        more = wording.more.format(count=len(asked) - SHOWN) if len(asked) > SHOWN else ""
        schema = _answer_schema(name, {**title, **choices_schema(asked, offered=len(choices))}, flow)
        content, problem = await _request(
            scene,
            frame,
            step,
            ask,
            schema,
            after="\n".join(filter(None, (choices_text(asked, wording.language), more))),
            before=before,
        )
        if content is None:
            return StepOutcome(status="declined", problem=wording.declined)
        before = problem
        if not problem and (answer := content.get(name)) is not None:
            asked = choices_of(state.asked[key].schema["properties"][name])  # maybe by another process
            found = _find_choice(answer, asked) or _find_choice(answer, choices)
            before = wording.several if found else phrases.unoffered.format(said=format_value(answer))
        scene.record.record_inputs(frame, {}, answered=key)
    chosen = found[0]
    if ask.into:
        scene.record.record_inputs(frame, {ask.into: chosen.value})
    return StepOutcome.of(chosen.value, answer=chosen.value, label=chosen.label_in(wording.language))


async def _request(
    scene: RunScope,
    frame: Frame,
    step: StepConfig,
    ask: AskConfig,
    schema: Mapping[str, Any],
    *,
    problem: str = "",
    before: str = "",
    after: str = "",
) -> tuple[dict[str, Any] | None, str]:
    """Ask once, and apply the corrections that come with the answer.

    Args:
        scene: the run.
        frame: frame of the step.
        step: the step.
        ask: its question.
        schema: schema of the answer.
        problem: why the last answer was rejected.
        before: what is said before the question in its place; by default why a later step has failed.
        after: the list of choices.

    Returns:
        The answer, None if the user declines; and why it is rejected.
    """
    flow = scene.flow_of(frame)
    (name,) = schema["required"]
    text = scene.text(frame, ask.question)
    offered = scene.offered_inputs(frame)
    answered = await scene.questions.request_answer(
        scene.record.state.key_of(frame, step.step_id),
        "\n".join(filter(None, (text, after))),
        tool=frame.flow_id,
        schema=schema,
        arguments=scene.record.state.inputs(frame),
        arguments_schema={"properties": offered} if offered else None,
        problem=problem,
        before=before or ("" if problem else scene.reason_to_ask_again(frame, step)),
    )
    if answered.action != "accept":
        return None, ""
    content = dict(answered.content)
    try:
        if (name in content or not content) and OFFERED not in schema["properties"][name]:
            content = validate_inputs(flow, content, schema=schema)
        corrected = {each: value for each, value in content.items() if each != name}
        if corrected and ask.into and name in content:  # else the answer is lost if the flow is rewound
            asked = choices_of(schema["properties"][name])
            chosen = _find_choice(content[name], asked) if asked else []
            corrected |= {name: chosen[0].value} if len(chosen) == 1 else {} if asked else content
        return content, scene.questions.apply_corrections(frame, corrected, offered=offered)
    except InvalidInputError as error:
        return {}, error.message


async def confirm_step(
    scene: RunScope, frame: Frame, step: StepConfig, confirm: ConfirmConfig
) -> StepOutcome:
    """Ask a yes-or-no question; a yes may correct inputs that no step has used yet."""
    state = scene.record.state
    scene.enter(frame, step, "")
    key, problem = state.key_of(frame, step.step_id), ""
    while True:
        text = scene.text(frame, confirm.question)
        offered = scene.offered_inputs(frame)
        decision = await scene.questions.request_decision(
            key,
            "approval",
            text,
            tool=frame.flow_id,
            arguments=state.inputs(frame),
            arguments_schema={"properties": offered} if offered else None,
            problem=problem,
        )
        if decision.action == "deny":
            why = decision.reason or scene.wording.declined
            return StepOutcome(status="declined", problem=why, outputs={"answer": False})
        problem = scene.questions.apply_corrections(frame, decision.arguments, offered=offered)
        if not problem and not decision.ask_again:
            return StepOutcome(outputs={"answer": True})
        scene.record.record_inputs(frame, {}, decided=key)


async def wait_outside(scene: RunScope, frame: Frame, step: StepConfig) -> StepOutcome:
    """Wait for a time, an event or an operator; no process holds the run meanwhile."""
    scene.enter(frame, step, "")
    key = scene.record.state.key_of(frame, step.step_id)
    if step.wait_for is not None:
        return await _wait(scene, frame, key, step.wait_for)
    assert step.handover is not None
    return await _hand_over(scene, frame, key, step.handover)


async def _wait(scene: RunScope, frame: Frame, key: str, wait: WaitConfig) -> StepOutcome:
    wording = scene.wording
    title = scene.flow_of(frame).title
    event_key = text_of(fill(wait.key, scene.values(frame)))
    if wait.key and not event_key:  # else any event without a key would be taken for it
        raise InvalidInputError(
            f"The key of the event {wait.event!r} is empty: {wait.key[:80]} has no value here.",
            advice="Let the flow require the input, or ask for it before.",
        )
    deadline = None if wait.timeout_seconds is None else time() + wait.timeout_seconds
    if not wait.event:
        deadline = _end_of(scene, frame, wait)
    pending = Pending(
        id=key,
        kind="event",
        tool=wait.event,
        arguments={"key": event_key} if wait.key else {},
        reason=scene.text(frame, wait.text) or wording.waiting.format(flow=title),
        deadline=deadline,
    )
    told = await scene.questions.wait_outside(pending)
    if told is not None and told.action != "accept":
        return StepOutcome(status="declined", problem=wording.declined)
    if not wait.event:
        return StepOutcome()
    if told is None:
        problem = f"The event {wait.event!r} did not come within {wait.timeout_seconds:g} s."
        return StepOutcome(status="failure", problem=problem, said=wording.too_long)
    payload = told.content.get("payload")
    return StepOutcome.of(payload, result=payload)


def _end_of(scene: RunScope, frame: Frame, wait: WaitConfig) -> float:
    """Return when a wait for a time ends, in seconds since 1970.

    Raises:
        InvalidInputError: it is no date or time.
    """
    if wait.seconds is not None:
        return time() + wait.seconds
    written = text_of(fill(wait.until, scene.values(frame)))
    try:
        moment = datetime.fromisoformat(written)
        if moment.tzinfo is None:
            file, context = scene.parts.file, scene.values(frame).context
            zone = zone_of(context.get("timezone")) or zone_of(file.basic_settings.timezone)
            moment = moment.replace(tzinfo=zone)  # without a zone it is this machine's
        return moment.timestamp()
    except (ValueError, OverflowError, OSError):  # also a year that the clock of this system does not have
        raise InvalidInputError(
            f"{written[:80]!r} is no date or time in ISO 8601.",
            advice='Give one such as 2026-12-01T15:00, by an input with "format": "date-time".',
        ) from None


async def _hand_over(scene: RunScope, frame: Frame, key: str, handover: HandoverConfig) -> StepOutcome:
    wording, seconds = scene.wording, handover.timeout_seconds
    about = scene.text(frame, handover.about)
    pending = Pending(
        id=key,
        kind="operator",
        tool=handover.queue,
        arguments={"about": about} if about else {},
        reason=scene.text(frame, handover.text) or wording.handed_over,
        schema=dict(handover.agreed or {}),
        deadline=None if seconds is None else time() + seconds,
        reply_seconds=handover.reply_seconds,
        since=time(),
    )
    told = await scene.questions.wait_outside(pending)
    if told is None:
        problem = f"No operator took the conversation within {seconds:g} s."
        return StepOutcome(status="failure", problem=problem, said=wording.no_operator)
    agreed = dict(told.content)
    if told.action != "accept":
        reason = str(agreed.get("reason", ""))
        problem = f"The operator {told.by!r} returned the conversation without a result. {reason}".strip()
        return StepOutcome(status="failure", problem=problem, said=reason or wording.not_agreed)
    return StepOutcome.of(agreed, result=agreed, operator=told.by)
