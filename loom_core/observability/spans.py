"""Spans of Loom and their attributes: the single source for code, docs and tests.

Names follow the OpenTelemetry semantic conventions for generative AI and MCP if these have one; searches use
`retrieval.…`, and other names of Loom begin with `loom.`. Only attributes marked as content may have texts of
people or models: see `content`.

Source: OpenTelemetry, "Semantic Conventions for GenAI agent and framework spans" and "… for MCP", 2026.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = [
    "ATTRIBUTES",
    "CHAT",
    "EXECUTE_TOOL",
    "FLOW_DECISION",
    "FLOW_KNOWLEDGE",
    "FLOW_MESSAGE",
    "FLOW_REQUEST",
    "FLOW_STEP",
    "INVOKE_AGENT",
    "INVOKE_WORKFLOW",
    "KNOWLEDGE_INGEST",
    "KNOWLEDGE_OWNER",
    "KNOWLEDGE_SEARCH",
    "MCP_CLIENT",
    "MCP_SERVER",
    "SPANS",
    "AttributeForm",
    "SpanForm",
    "SpanKind",
]

SpanKind: TypeAlias = Literal["internal", "client", "server"]


@dataclass(frozen=True, slots=True)
class AttributeForm:
    """Form of an attribute.

    Attributes:
        about: description, in a sentence.
        type: type of its value: `text`, `texts`, `number`, `whole number` or `yes or no`.
        content: whether it has texts of people or models: recorded with LOOM_TRACE_CONTENT=1 only.
    """

    about: str
    type: Literal["text", "texts", "number", "whole number", "yes or no"] = "text"
    content: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanForm:
    """One kind of span.

    Attributes:
        name: its name, or the start of it.
        target: the attribute whose value ends the name; empty for none.
        kind: OpenTelemetry's span kind.
        scope: the instrumentation scope, a module's name.
        about: description, in a sentence.
        attributes: its possible attributes; each is in `ATTRIBUTES`.
        by_sdk: whether the MCP SDK starts and ends it, and Loom only adds attributes.
    """

    name: str
    scope: str
    about: str
    attributes: tuple[str, ...]
    target: str = ""
    kind: SpanKind = "internal"
    by_sdk: bool = False

    @property
    def shown(self) -> str:
        """Its display name: `chat {gen_ai.request.model}`."""
        return f"{self.name} {{{self.target}}}" if self.target else self.name


_A = AttributeForm
ATTRIBUTES: dict[str, AttributeForm] = {
    "error.type": _A("Why it failed: a failure such as `timeout`, else the error's class; with status ERROR"),
    "gen_ai.operation.name": _A("`chat`, `execute_tool`, `invoke_agent`, `invoke_workflow` or `retrieval`"),
    "gen_ai.provider.name": _A("Vendor of the model"),
    "gen_ai.request.model": _A("Model that is asked"),
    "gen_ai.request.stream": _A("Whether the answer is streamed", "yes or no"),
    "gen_ai.request.max_tokens": _A("Limit of the answer", "whole number"),
    "gen_ai.request.temperature": _A("Temperature, where one was set", "number"),
    "gen_ai.request.top_p": _A("Nucleus sampling, where it was set", "number"),
    "gen_ai.output.type": _A("`json` where an answer of a schema was asked for"),
    "gen_ai.response.model": _A("Model that has answered, where the vendor says it"),
    "gen_ai.response.finish_reasons": _A("Why the answer ended: one of Loom's reasons", "texts"),
    "gen_ai.response.time_to_first_chunk": _A("Seconds to the first piece of a stream", "number"),
    "gen_ai.usage.input_tokens": _A("Tokens of the input, cached ones included", "whole number"),
    "gen_ai.usage.output_tokens": _A("Tokens of the answer, reasoning included", "whole number"),
    "gen_ai.usage.reasoning.output_tokens": _A("Of these, for reasoning", "whole number"),
    "gen_ai.usage.cache_read.input_tokens": _A("Of the input, read from the vendor's cache", "whole number"),
    "gen_ai.usage.cache_creation.input_tokens": _A("Of the input, written to it", "whole number"),
    "gen_ai.input.messages": _A("The conversation, as JSON", content=True),
    "gen_ai.output.messages": _A("The answer, as JSON", content=True),
    "gen_ai.tool.name": _A("The tool, as people call it; `unknown` where there is none such"),
    "gen_ai.tool.call.id": _A("Id of the call"),
    "gen_ai.tool.call.arguments": _A("Arguments of the call, as JSON", content=True),
    "gen_ai.tool.call.result": _A("What the tool answered", content=True),
    "gen_ai.agent.id": _A("`agent_id` of the `LoomTracer` that makes the span"),
    "gen_ai.agent.name": _A("Profile of the agent"),
    "gen_ai.workflow.name": _A("Id of the flow"),
    "gen_ai.conversation.id": _A("Session that the run belongs to"),
    "gen_ai.data_source.id": _A("Name of the knowledge base"),
    "gen_ai.retrieval.query.text": _A("What was asked", content=True),
    "loom.usage.cost": _A("US dollars, where the price is known", "number"),
    "loom.usage.estimated": _A("Whether the tokens are an estimate of Loom's", "yes or no"),
    "loom.run.id": _A("The run"),
    "loom.run.depth": _A("Number of agents above it", "whole number"),
    "loom.run.status": _A("Its status when it was detached"),
    "loom.run.iterations": _A("Turns of the model", "whole number"),
    "loom.run.tool_calls": _A("Calls that were run", "whole number"),
    "loom.tool.status": _A("`success`, `error`, `denied`, `timeout` or `aborted`"),
    "loom.tool.waited_ms": _A("Milliseconds until it had a slot and was checked again", "number"),
    "loom.flow.action": _A("What is done with a message: `flow`, `respond`, `answer` and so on"),
    "loom.flow.how": _A("What decided that: `rules`, `model`, `pending` and so on"),
    "loom.flow.confidence": _A("How sure the model is, from 0 to 1", "number"),
    "loom.flow.knowledge": _A("`cached`, `shared`, `retrieved`, `nothing`, `failed`, `late` or `dropped`"),
    "loom.flow.step": _A("Path of the step, such as `pay` or `outer/0/inner`"),
    "loom.flow.step.kind": _A("`operation`, `tool`, `workflow`, `parallel`, `ask`, `confirm` or `none`"),
    "loom.flow.step.status": _A("`success`, `failure`, `declined` or `unknown`"),
    "loom.knowledge_base": _A("Name of the knowledge base"),
    "loom.owner.method": _A("What another process asked for: `search`, `ask` or `embed`"),
    "loom.job.id": _A("The job"),
    "loom.job.kind": _A("`add` or `sync`"),
    "loom.job.state": _A("How it ended; `interrupted` if another process continues it"),
    "loom.job.documents": _A("Processed documents", "whole number"),
    "loom.job.failed": _A("Of these, that failed", "whole number"),
    "loom.job.chunks": _A("Chunks that were written", "whole number"),
    "retrieval.strategy": _A("`hybrid`, `graph_first`, `vector_first`, `graph_only` or `bm25`"),
    "retrieval.lexical_count": _A("Passages that words found", "whole number"),
    "retrieval.vector_count": _A("Passages that vectors found", "whole number"),
    "retrieval.graph_count": _A("Passages that the graph found", "whole number"),
    "retrieval.expansion_count": _A("Passages that links led to; `hybrid` only", "whole number"),
    "retrieval.result_count": _A("Passages in the answer", "whole number"),
    "retrieval.parallel_ms": _A(
        "Milliseconds of words, in parallel with embedding and vectors; `hybrid` only", "number"
    ),
    "retrieval.expansion_ms": _A("Milliseconds of following links; `hybrid` only", "number"),
    "retrieval.walk_ms": _A("Milliseconds of the walk over the graph; `hybrid` only", "number"),
    "retrieval.sub_questions_ms": _A("Milliseconds of sub-questions; `hybrid` only", "number"),
    "retrieval.embed_ms": _A("Milliseconds of embedding the question and its sub-questions", "number"),
    "retrieval.total_ms": _A("Total milliseconds", "number"),
    "retrieval.fallback_to_vector": _A(
        "Whether the graph had nothing and vectors answered; `graph_first` only", "yes or no"
    ),
    "mcp.method.name": _A("Method of the request, such as `tools/call`; `unknown` where there is none such"),
    "mcp.protocol.version": _A("Revision of the protocol"),
    "mcp.session.id": _A("Session of the handshake era over HTTP: the beginning of a hash of its id"),
    "mcp.resource.uri": _A("Resource that is read"),
    "jsonrpc.request.id": _A("Id of the request"),
    "gen_ai.prompt.name": _A("Prompt that is asked for"),
    "rpc.response.status_code": _A("Code of the JSON-RPC error"),
    "network.transport": _A("`pipe` for stdio, `tcp` for HTTP"),
    "network.protocol.name": _A("`http`, over HTTP"),
    "http.request.method": _A("HTTP method"),
    "http.request.resend_count": _A("How often it was sent again, where it was", "whole number"),
    "http.response.status_code": _A("HTTP status of the last answer", "whole number"),
    "server.address": _A("Host of the server that is asked, over HTTP"),
    "server.port": _A("Its port", "whole number"),
    "loom.mcp.server": _A("Id of the server in the configuration"),
}
"""Every attribute of `SPANS`, by name."""

_USAGE = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.reasoning.output_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_creation.input_tokens",
    "loom.usage.cost",
    "loom.usage.estimated",
)
_RUN = ("loom.run.id", "gen_ai.conversation.id", "loom.run.depth", "loom.run.status", "loom.run.tool_calls")
_MCP = (
    "mcp.method.name",
    "mcp.protocol.version",
    "mcp.session.id",
    "jsonrpc.request.id",
    "network.transport",
    "network.protocol.name",
    "rpc.response.status_code",
    "error.type",
)

CHAT = SpanForm(
    name="chat",
    target="gen_ai.request.model",
    kind="client",
    scope="loom_core.llm",
    about="A model answers a conversation: all attempts, to the last piece of a stream.",
    attributes=(
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.request.stream",
        "gen_ai.request.max_tokens",
        "gen_ai.request.temperature",
        "gen_ai.request.top_p",
        "gen_ai.output.type",
        "gen_ai.response.model",
        "gen_ai.response.finish_reasons",
        "gen_ai.response.time_to_first_chunk",
        *_USAGE,
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "error.type",
    ),
)
EXECUTE_TOOL = SpanForm(
    name="execute_tool",
    target="gen_ai.tool.name",
    scope="loom_core.tools",
    about="A tool call, from its permission on: waiting for a slot, execution, result.",
    attributes=(
        "gen_ai.operation.name",
        "gen_ai.tool.name",
        "gen_ai.tool.call.id",
        "loom.run.id",
        "loom.tool.status",
        "loom.tool.waited_ms",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "error.type",
    ),
)
INVOKE_AGENT = SpanForm(
    name="invoke_agent",
    target="gen_ai.agent.name",
    scope="loom_core.agent",
    about="An agent run is executed, until it ends, or this process detaches.",
    attributes=(
        "gen_ai.operation.name",
        "gen_ai.agent.name",
        *_RUN,
        "loom.run.iterations",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "loom.usage.cost",
        "error.type",
    ),
)
INVOKE_WORKFLOW = SpanForm(
    name="invoke_workflow",
    target="gen_ai.workflow.name",
    scope="loom_core.flow",
    about="A flow run is executed, until it ends or waits for people.",
    attributes=("gen_ai.operation.name", "gen_ai.workflow.name", *_RUN, "error.type"),
)
FLOW_MESSAGE = SpanForm(
    name="flow_message",
    scope="loom_core.flow",
    about="A message of a conversation with flows: the decision, and what is done at once, including an"
    " answer in words. A run that it starts continues separately.",
    attributes=(
        "loom.flow.action",
        "loom.flow.how",
        "gen_ai.workflow.name",
        "gen_ai.conversation.id",
        "loom.run.id",
        "error.type",
    ),
)
FLOW_DECISION = SpanForm(
    name="flow_decision",
    scope="loom_core.flow",
    about="A model decides what to do with a message; repeated if its answer was unreadable.",
    attributes=("loom.flow.action", "loom.flow.confidence", "gen_ai.workflow.name", "error.type"),
)
FLOW_KNOWLEDGE = SpanForm(
    name="flow_knowledge",
    scope="loom_core.flow",
    about="Knowledge about a message is requested in parallel with the decision; of zero length if it is"
    " cached or requested already.",
    attributes=("gen_ai.operation.name", "loom.flow.knowledge", "retrieval.result_count", "error.type"),
)
FLOW_STEP = SpanForm(
    name="flow_step",
    target="loom.flow.step",
    scope="loom_core.flow",
    about="One execution of a step of a flow.",
    attributes=(
        "loom.flow.step",
        "loom.flow.step.kind",
        "loom.flow.step.status",
        "gen_ai.workflow.name",
        "loom.run.id",
        "error.type",
    ),
)
FLOW_REQUEST = SpanForm(
    name="HTTP",
    target="http.request.method",
    kind="client",
    scope="loom_core.flow",
    about="A request of a flow file, for a step, a tool or knowledge: all attempts, and the time between.",
    attributes=(
        "http.request.method",
        "http.request.resend_count",
        "http.response.status_code",
        "server.address",
        "server.port",
        "loom.run.id",
        "error.type",
    ),
)
KNOWLEDGE_SEARCH = SpanForm(
    name="KNOWLEDGE_SEARCH",
    scope="loom_core.knowledge",
    about="A knowledge base is searched.",
    attributes=(
        "gen_ai.operation.name",
        "gen_ai.data_source.id",
        "gen_ai.agent.id",
        "loom.knowledge_base",
        "retrieval.strategy",
        "retrieval.lexical_count",
        "retrieval.graph_count",
        "retrieval.vector_count",
        "retrieval.expansion_count",
        "retrieval.result_count",
        "retrieval.parallel_ms",
        "retrieval.expansion_ms",
        "retrieval.walk_ms",
        "retrieval.sub_questions_ms",
        "retrieval.embed_ms",
        "retrieval.total_ms",
        "retrieval.fallback_to_vector",
        "gen_ai.retrieval.query.text",
        "error.type",
    ),
)
KNOWLEDGE_OWNER = SpanForm(
    name="KNOWLEDGE_OWNER",
    target="loom.owner.method",
    kind="server",
    scope="loom_core.knowledge",
    about="The process that works for a knowledge base answers another one, over their local socket.",
    attributes=("loom.owner.method", "error.type"),
)
KNOWLEDGE_INGEST = SpanForm(
    name="KNOWLEDGE_INGEST",
    scope="loom_core.knowledge",
    about="A job adds documents; a child of the request that submitted it, in whichever process.",
    attributes=(
        "loom.job.id",
        "loom.job.kind",
        "loom.job.state",
        "loom.job.documents",
        "loom.job.failed",
        "loom.job.chunks",
        "error.type",
    ),
)
MCP_CLIENT = SpanForm(
    name="MCP send {mcp.method.name}",
    target="gen_ai.tool.name",
    kind="client",
    scope="mcp-python-sdk",
    about="A request to an MCP server; its name ends with the tool or prompt.",
    attributes=(*_MCP, "loom.mcp.server", "server.address", "server.port"),
    by_sdk=True,
)
MCP_SERVER = SpanForm(
    name="{mcp.method.name}",
    target="gen_ai.tool.name",
    kind="server",
    scope="mcp-python-sdk",
    about="A server of Loom answers a request; its name ends with the tool or prompt.",
    attributes=(
        *_MCP,
        "gen_ai.operation.name",
        "gen_ai.tool.name",
        "gen_ai.prompt.name",
        "mcp.resource.uri",
    ),
    by_sdk=True,
)

SPANS: tuple[SpanForm, ...] = (
    MCP_SERVER,
    INVOKE_AGENT,
    CHAT,
    EXECUTE_TOOL,
    MCP_CLIENT,
    FLOW_MESSAGE,
    FLOW_DECISION,
    FLOW_KNOWLEDGE,
    INVOKE_WORKFLOW,
    FLOW_STEP,
    FLOW_REQUEST,
    KNOWLEDGE_SEARCH,
    KNOWLEDGE_OWNER,
    KNOWLEDGE_INGEST,
)
"""All spans, outer ones first."""
