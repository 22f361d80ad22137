"""Demonstration without a language model: rules in place of one, and tools that show the features.

It is deterministic, needs no key and no network, and says that it is not a model. Depending on the goal:

| goal | action |
|---|---|
| `use TOOL {"argument": …}`, several with `and` | calls these tools, concurrently |
| note, write, save, 记 | saves a note, which needs approval |
| wait 3, 等待 3 | waits that many seconds, and reports progress |
| ask, 问 | has a tool ask the user a question |
| what time, the date, 几点, 日期 | reads the clock |
| anything else | searches knowledge bases if there are any, or lists files, or reads the clock |

Then it answers with the results of the tools, in English or Chinese like the goal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import anyio
from pydantic import Field

from loom_core.agent.compaction.summary import SECTIONS, format_sections, parse_sections
from loom_core.cjk import is_chinese
from loom_core.llm.messages import AssistantMessage, TextPart, ToolCallPart, ToolMessage, UserMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext, Question, Tool

if TYPE_CHECKING:
    from loom_core.llm.interface import ChatRequest
    from loom_core.llm.messages import Message

__all__ = ["MODEL", "SEARCH", "demonstration_model", "demonstration_tools"]

MODEL = "demonstration"

_USE = re.compile(r"\buse\s+(?P<tool>[\w:.-]+)|(?:使用|调用)\s*(?P<zh>[\w:.-]+)")
_WAIT = re.compile(r"(?:wait|等待?)\s*(?P<seconds>\d+(?:\.\d+)?)", re.IGNORECASE)
_NOTE = re.compile(r"\b(?:note|write|save|remember)\b|记|写|保存", re.IGNORECASE)
_ASK = re.compile(r"\bask\b|问", re.IGNORECASE)
_TIME = re.compile(r"\bwhat (?:time|date|day)\b|\bthe (?:time|date)\b|几点|几号|日期|时间", re.IGNORECASE)
_SHOWN = 600  # characters of a result
_PIECE_SECONDS = 0.01
SEARCH = "search_documents"
"""Name of the tool that searches knowledge bases."""

_FILES = "list_files"
_PASSAGE = "<passage>"


def demonstration_model() -> MockProvider:
    """Return the rules as a provider."""
    return MockProvider(_answer, delay=_PIECE_SECONDS, model=MODEL)


def demonstration_tools() -> tuple[Tool, ...]:
    """Return the tools of the demonstration; notes are kept as long as the process runs."""
    notes: list[str] = []

    @tool(read_only=True, open_world=False, idempotent=True)
    def clock() -> str:
        """The date and time here."""
        return datetime.now().astimezone().isoformat(timespec="seconds")

    @tool(destructive=False, open_world=False)
    def keep_note(text: Annotated[str, Field(min_length=1, description="What to note.")]) -> dict[str, Any]:
        """Keep a note for the user; it changes something, so a person has to approve it."""
        notes.append(text)
        return {"kept": text, "notes": len(notes)}

    @tool(read_only=True, open_world=False, concurrency_safe=True)
    async def wait_for(
        context: CallContext,
        seconds: Annotated[float, Field(ge=0, le=600, description="How long.")],
    ) -> str:
        """Wait, and tell how far it is."""
        step = min(1.0, seconds / 10)
        done = 0.0
        while done < seconds:
            await anyio.sleep(min(step, seconds - done))
            done += step
            if context.progress is not None:
                await context.progress(min(done, seconds), seconds, "waiting")
        return f"Waited {seconds:g} s."

    @tool(read_only=True, open_world=False)
    async def ask_user(
        context: CallContext, question: Annotated[str, Field(min_length=1, description="What to ask.")]
    ) -> str:
        """Ask the user something and give their answer."""
        if context.ask is None:
            return "No one can be asked."
        schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
        answer = await context.ask(Question(question, schema=schema))
        return str(answer.content.get("answer", "")) if answer.action == "accept" else f"({answer.action})"

    return clock, keep_note, wait_for, ask_user


def _answer(request: ChatRequest) -> MockAnswer:
    if not request.tools and (summary := _summary(request.messages[0].text)):
        return MockAnswer(summary)
    goal, since = _goal(request.messages)
    results = [message for message in since if isinstance(message, ToolMessage)]
    chinese = is_chinese(goal)
    number = sum(isinstance(message, AssistantMessage) for message in request.messages)
    wanted = [] if results or not request.tools else _plan_calls(goal, {spec.name for spec in request.tools})
    if wanted:
        calls = tuple(
            ToolCallPart(f"call_{number + 1}_{place}", name, arguments)
            for place, (name, arguments) in enumerate(wanted, start=1)
        )
        names = ("、" if chinese else ", ").join(call.name for call in calls)
        reasoning = f"目标：{goal}" if chinese else f"The goal: {goal}"
        return MockAnswer(f"我先使用 {names}。" if chinese else f"First I use {names}.", reasoning, calls)
    # For a reprompt in another form, it answers from the earlier results.
    results = results or [message for message in request.messages if isinstance(message, ToolMessage)]
    text = _final_answer(results, chinese=chinese)
    return MockAnswer(text if request.output is None else _fill_schema(request.output.schema, text, goal))


def _summary(instructions: str) -> str:
    """Return a placeholder summary, if the instructions ask for a summary; otherwise empty."""
    if len(parse_sections(instructions)) < len(SECTIONS):
        return ""
    chinese = SECTIONS[0].title_zh in instructions
    nothing = (
        "（没有语言模型的演示不作总结。）"
        if chinese
        else "(A demonstration without a model does not summarize.)"
    )
    return format_sections(dict.fromkeys(range(len(SECTIONS)), nothing), chinese=chinese)


def _goal(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """Return the last message of the user, without retrieved passages, and the messages after it."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        said = message.parts[-1] if isinstance(message, UserMessage) else None  # after attachments
        if isinstance(said, TextPart) and _PASSAGE not in said.text:
            return said.text, messages[place + 1 :]
    return "", messages


def _plan_calls(goal: str, there: set[str]) -> list[tuple[str, dict[str, Any]]]:
    """Plan the calls for a goal: the tools that it names, else an available tool by keywords."""
    named = [(match["tool"] or match["zh"], _arguments(goal, match.end())) for match in _USE.finditer(goal)]
    if named:
        return named
    if (waiting := _WAIT.search(goal)) and "wait_for" in there:
        return [("wait_for", {"seconds": float(waiting["seconds"])})]
    if _NOTE.search(goal) and "keep_note" in there:
        return [("keep_note", {"text": goal})]
    if _ASK.search(goal) and "ask_user" in there:
        return [("ask_user", {"question": goal})]
    if _TIME.search(goal) and "clock" in there:
        return [("clock", {})]
    if SEARCH in there:
        return [(SEARCH, {"query": goal})]
    looked: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in (_FILES, "clock") if name in there]
    return looked[:1]


def _arguments(goal: str, start: int) -> dict[str, Any]:
    """Return the JSON object at an index; empty if there is none."""
    text = goal[start:].lstrip()
    if not text.startswith("{"):
        return {}
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return {}
    return value


def _final_answer(results: Sequence[ToolMessage], *, chinese: bool) -> str:
    """Return the final answer: the results of the tools, and a note that no model wrote it."""
    shown = [result.text[:_SHOWN].strip() for result in results]
    if chinese:
        text = "工具的结果：" + "；".join(shown) if shown else "没有调用任何工具。"
        return text + "\n（这是没有语言模型的演示。要得到真正的回答，请配置一个模型。）"
    text = "The tools say: " + "; ".join(shown) if shown else "No tool was called."
    return text + "\n(This is a demonstration without a language model. Configure one for real answers.)"


def _fill_schema(schema: Mapping[str, Any], text: str, goal: str) -> str:
    """Fill the properties of a schema: an enum with the value that the goal names, strings with the text."""
    blank: dict[str, object] = {"integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    filled = {name: blank.get(part.get("type", "string"), text) for name, part in properties.items()}
    for name, part in properties.items():
        if choices := part.get("enum"):
            filled[name] = next((each for each in choices if str(each) in goal), choices[0])
    return json.dumps(filled, ensure_ascii=False)
