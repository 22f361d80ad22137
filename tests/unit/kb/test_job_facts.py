"""Facts that are reported about a job."""

from __future__ import annotations

import anyio
import pytest
from loom_kb.job_facts import job_info

from loom_core.errors import LLMError
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag import GraphRAGKnowledgeBase, RAGConfig
from loom_core.knowledge.rag.requests import DocumentsRequest
from loom_core.knowledge.retrieval.config import WaitSettings
from loom_core.llm.interface import ChatRequest
from loom_core.llm.mock import MockProvider


@pytest.mark.slow
async def test_a_job_that_waits_for_a_language_model_says_why():
    asked_again = anyio.Event()

    def reply(_: ChatRequest) -> LLMError:
        if len(model.calls) > 1:
            asked_again.set()
        return LLMError("Nothing is left.", failure="quota")

    model = MockProvider(reply)
    config = RAGConfig(waits=WaitSettings(retry=0.01))
    knowledge_base = GraphRAGKnowledgeBase.from_config(llm_provider=model, config=config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(knowledge_base.work)
        id_ = knowledge_base.submit(DocumentsRequest([DocumentDraft(uri="text:a", text="Zell has a lake.")]))
        with anyio.fail_after(20):
            await asked_again.wait()
        info = job_info(knowledge_base, knowledge_base.job(id_))
        assert info.state == "running"
        assert "has stopped: Nothing is left." in info.notes[0]
        tasks.cancel_scope.cancel()
    knowledge_base.close()
