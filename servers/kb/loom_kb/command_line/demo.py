"""`loom-kb demo`: a knowledge base from the demo documents of the package, and three cited answers."""

from __future__ import annotations

import json
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.errors import ConfigError
from loom_core.paths import loom_home
from loom_core.server.cli.console import out, out_json, say, strong
from loom_core.server.install.launch import Interpreter, launch_of
from loom_core.server.search.citations import citation
from loom_kb.command_line.job_progress import work_until_idle

if TYPE_CHECKING:
    from loom_kb.service import KnowledgeService

__all__ = ["QUESTIONS", "demo"]

_NAME = "demo"
_DESCRIPTION = "Weaving and computing: draw looms, punched cards, engines, 提花机、天工开物、丝绸之路"
_QUOTE = 420  # characters of a passage that are shown

QUESTIONS = (
    "How many punched cards did the woven portrait of Jacquard take?",
    "Which poet was the father of the woman who translated Menabrea's account of the engine?",
    "织匠不知道会织出什么花色，花纹是怎样织出来的？",
)
"""A look-up; a multi-hop question, answered in another document than its words; one in Chinese."""


async def demo(service: KnowledgeService, *, as_json: bool) -> int:
    """Build the knowledge base `demo` in Loom's home, query it, and explain how to connect a client."""
    if as_json:
        await _build(service)
        out_json({question: await _top(service, question) for question in QUESTIONS})
        return 0
    say("Building the knowledge base “demo” from documents about weaving and computing, English and Chinese.")
    documents, passages, entities, relations = await _build(service)
    out(
        f"{documents} documents, {passages} passages, {entities} entities and {relations} relations "
        "(by rules; no key, nothing downloaded).\n"
    )
    for number, question in enumerate(QUESTIONS, 1):
        result = await service.query(question, source=_NAME, limit=3)
        out(strong(f"Question {number}: {question}"))
        for passage in result.passages[:2]:
            out(f"  {citation(passage)}")
            out(f"      {_quote(passage.text)}")
            out(f"      found because: {'; '.join(passage.why)}")
        out()
    out(_how_to_connect(service.settings.home))
    return 0


async def _build(service: KnowledgeService) -> tuple[int, int, int, int]:
    with as_file(files("loom_kb") / "demo_documents") as folder:
        request = await service.request_files([folder])
        (knowledge_base,), job = await service.add(request, source=_NAME, description=_DESCRIPTION)
        await work_until_idle(knowledge_base, job)
    documents, passages, _ = await to_thread.run_sync(knowledge_base.documents.counts)
    entities, relations, _ = await to_thread.run_sync(knowledge_base.graph.counts)
    return documents, passages, entities, relations


async def _top(service: KnowledgeService, question: str) -> list[dict[str, object]]:
    result = await service.query(question, source=_NAME, limit=3)
    return [passage.model_dump(mode="json") for passage in result.passages]


def _quote(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _QUOTE else text[:_QUOTE] + "…"


def _how_to_connect(home: Path) -> str:
    try:
        launch = launch_of("loom-kb", "loom_kb", interpreter=Interpreter.this())
    except ConfigError as error:
        return f"{strong('Connect a client.')} {error.message} {error.advice}"
    server: dict[str, object] = {"command": launch.command, "args": list(launch.arguments)}
    if home != loom_home():
        server["env"] = {"LOOM_HOME": str(home)}
    snippet = json.dumps({"mcpServers": {"loom-kb": server}}, ensure_ascii=False, indent=2)
    return (
        f"{strong('Connect a client.')} In Claude Desktop: Settings › Developer › Edit Config; in an IDE: "
        f"its mcp.json. Put in:\n\n{snippet}\n\n"
        "Then ask it something about weaving. Add your own documents with\n"
        "    loom-kb add FOLDER\n"
        'or let the model add them: put "--root", "/path/to/FOLDER" into args.\n'
        f"The knowledge base is in {home / 'kb' / _NAME}; `loom-kb remove --kb demo --all` removes it."
    )
