"""The source of knowledge that a flow file names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.flow.config.models_knowledge import DocumentsSource, HttpSource
from loom_core.flow.knowledge.api import ApiKnowledge
from loom_core.flow.knowledge.provider import ProviderKnowledge

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.http.caller import EndpointCaller
    from loom_core.flow.knowledge.source import FlowKnowledge
    from loom_core.knowledge.interface import KnowledgeBaseProvider

__all__ = ["named_knowledge"]

_NAME = "knowledge"


def named_knowledge(file: FlowFile, caller: EndpointCaller) -> FlowKnowledge | None:
    """What a file says is to be asked; None where it names nothing.

    Args:
        file: what it says.
        caller: sends the requests to an API of the house.

    Raises:
        ConfigError: it names what only the program can open, such as a knowledge base of this machine.
    """
    if file.retrieve_knowledge_url is not None:
        return ApiKnowledge(file.retrieve_knowledge_url, caller)
    provider: KnowledgeBaseProvider
    match file.knowledge:
        case None:
            return None
        case HttpSource():
            from loom_core.knowledge.http import HTTPKnowledgeBase

            provider = HTTPKnowledgeBase(file.knowledge, name=_NAME)
        case DocumentsSource():
            from loom_core.knowledge.documents import DocumentsKnowledgeBase

            provider = DocumentsKnowledgeBase(file.knowledge.documents, name=_NAME)
        case _:
            raise ConfigError(
                f"The knowledge of the flow file is of kind `{file.knowledge.kind}`, and was not opened.",
                advice="Give it as `knowledge`, such as `ProviderKnowledge(…)`; loom-flow-server does so.",
            )
    return ProviderKnowledge(provider)
