"""Models of `flow.json`: flows, skills, system tools, knowledge (docs/reference/flow-config.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, AliasChoices, Field, JsonValue

from loom_core.errors import NotFoundError
from loom_core.flow.config.models_endpoint import (
    Address,
    ConfigSection,
    EndpointConfig,
    Headers,
    Id,
    Query,
    Schema,
    WrittenEndpoint,
    text_as,
)
from loom_core.flow.config.models_step import StepConfig, iter_steps
from loom_core.flow.understanding.moments import zone_of
from loom_core.knowledge.sources.documents import TextDocument
from loom_core.knowledge.sources.remote.http import HTTPKnowledgeConfig
from loom_core.knowledge.sources.remote.mcp_search import MCPKnowledgeConfig
from loom_core.knowledge.sources.remote.result_mapping import ResultMapping
from loom_core.llm.config import ProviderConfigInput

__all__ = [
    "SKILLS_PROFILE",
    "AgentConfigSchema",
    "Ambiguous",
    "BasicSettings",
    "Confirm",
    "DocumentsSource",
    "FlowConfig",
    "FlowFile",
    "HttpSource",
    "KnowledgeEndpointConfig",
    "KnowledgeSource",
    "LocalSource",
    "McpSource",
    "NetConfig",
    "Question",
    "SkillConfig",
    "SystemToolConfig",
    "WrittenKnowledgeEndpoint",
    "flow_json_schema",
    "has_side_effects",
    "may_wait",
]

_CALLER_CONTEXT: dict[str, JsonValue] = {
    "chatbotId": "{$context.chatbotId}",
    "tenantId": "{$context.tenantId}",
}


class KnowledgeEndpointConfig(ConfigSection):
    """An API that is queried for knowledge about a message in advance; a text is its address."""

    url: Address = Field(min_length=1, description="An http(s) address, or a path relative to `flow_url`.")
    method: Literal["GET", "POST"] = Field(
        default="GET", description="GET sends the parameters in the address, POST as a JSON object."
    )
    headers: Headers = Field(default={}, repr=False, description="Headers, as those of an endpoint.")
    query_field: str = Field(default="keywords", min_length=1, description="The parameter for the message.")
    send: Literal["question", "keywords"] = Field(
        default="question",
        description="Its value: the message, or only its content words, separated by spaces.",
    )
    limit_field: str = Field(default="", description="The parameter for the number of passages.")
    parameters: Query = Field(
        default=_CALLER_CONTEXT,
        repr=False,
        description="Further parameters: templates (what has no value is left out), or secrets.",
    )
    mapping: ResultMapping = Field(
        default=ResultMapping(), description="Where the passages are in the response, as in query.json."
    )
    limit: int = Field(default=5, ge=1, le=50, description="Maximum number of passages.")


WrittenKnowledgeEndpoint = Annotated[KnowledgeEndpointConfig, text_as("url", KnowledgeEndpointConfig)]


class LocalSource(ConfigSection):
    """A local knowledge base of Loom."""

    kind: Literal["local"]
    knowledge_base: str = Field(min_length=1, description="Its name.")
    home: str = Field(default="", description="Its Loom home; by default the server's own.")


class HttpSource(HTTPKnowledgeConfig):
    """An HTTP search API."""

    kind: Literal["http"]


class McpSource(MCPKnowledgeConfig):
    """A search tool of an MCP server."""

    kind: Literal["mcp"]
    server: Annotated[str, Field(min_length=1)] | dict[str, Any] = Field(
        repr=False, description="A server's name in mcp.json, or an entry in the same form."
    )


class DocumentsSource(ConfigSection):
    """A few texts given in the file itself."""

    kind: Literal["documents"]
    documents: list[TextDocument] = Field(min_length=1, description="Objects, each with a text.")


KnowledgeSource: TypeAlias = Annotated[
    LocalSource | HttpSource | McpSource | DocumentsSource, Field(discriminator="kind")
]
"""A knowledge source, in the same form as in `query.json`."""


SKILLS_PROFILE = "$skills"
"""The profile of runs of skills and single tools; no flow has this id."""

Ambiguous: TypeAlias = Literal["first", "llm", "ask"]
"""Policy for a message that fits several flows equally: take the first, let the model choose, or ask the
user."""

Question: TypeAlias = Annotated[str, Field(min_length=1)]
"""A template that a user reads."""

Confirm: TypeAlias = Literal["never", "always", "model"]
"""When to ask the user for confirmation before a flow starts."""

_TRUNCATED = 4096


def _check_zone(name: str) -> str:
    if name and zone_of(name) is None:
        raise ValueError(f"there is no time zone {name!r}: give an IANA name such as Asia/Shanghai")
    return name


class BasicSettings(ConfigSection):
    """Name, language and instructions of the assistant."""

    name: str = Field(default="", description="The assistant's name.")
    description: str = Field(default="", description="Its purpose, in a sentence.")
    language: Literal["auto", "zh", "en"] = Field(
        default="auto",
        description="The language of its own sentences: `zh`, `en`, or `auto`, that of the message.",
    )
    timezone: Annotated[str, AfterValidator(_check_zone)] = Field(
        default="",
        description="The time zone of its users (`Asia/Shanghai`, an IANA name), from which 明天 and "
        "\"in two hours\" count; by default this machine's. A message's context `timezone` overrides it.",
    )
    instructions: str = Field(default="", description="Instructions for the model.")
    greeting: str = Field(default="", description="Its reply to a greeting, or to an empty message.")


class NetConfig(ConfigSection):
    """Network policy: requests may go to public addresses, and to the hosts named here."""

    allow: list[str] = Field(
        default=[],
        description="Hosts, addresses and networks (`flow-api.corp`, `10.0.0.0/8`) that are allowed "
        "in addition to the open internet. Addresses of cloud metadata never are.",
    )
    only: list[str] = Field(
        default=[],
        description="If any: the only hosts that are allowed; `*.example.org` for all below.",
    )
    trace: list[str] = Field(
        default=[],
        description="Hosts that receive the trace context of a request (`traceparent`, W3C); "
        "`*.example.org` for all below. By default none is.",
    )
    seconds: float = Field(default=60.0, gt=0, le=600, description="Timeout of a request.")
    max_bytes: int = Field(
        default=4 << 20, ge=1024, le=64 << 20, description="Maximum size of a response, in bytes."
    )
    concurrency: int = Field(default=20, ge=1, le=1000, description="Maximum number of concurrent requests.")
    per_minute: int | None = Field(
        default=None,
        ge=1,
        description="Maximum number of requests to one host in a minute; by default no limit.",
    )
    breaker_failures: int = Field(
        default=5,
        ge=1,
        description="Number of consecutive failures of a host, such as timeouts and 503, after which it gets "
        "no requests for a while (circuit breaker).",
    )
    breaker_pause: float = Field(
        default=15.0,
        ge=0,
        le=300,
        description="Seconds until it gets the next request; the pause doubles each time that this fails, up "
        "to 300.",
    )


class FlowConfig(ConfigSection):
    """A flow: a fixed business process of one request or several steps."""

    flow_id: Id = Field(description="Its id, unique in the file.")
    name: str = Field(
        default="",
        description="Its name for people; by default its id. This and all that people read "
        "may be in both languages, with ` / ` between: `请假 / Leave`. Each reads the part in their own.",
    )
    description: str = Field(default="", description="What it does and when to use it; for models.")
    enabled: bool = Field(default=True, description="Whether it is enabled.")
    hidden: bool = Field(
        default=False,
        description="Whether the assistant leaves it out when it says what it can do, such as an emergency: "
        "its patterns and the model start it as any other.",
    )
    trigger_patterns: list[Annotated[str, Field(min_length=1, max_length=_TRUNCATED)]] = Field(
        default=[],
        description="Regular expressions (RE2) that are searched for in a message, whatever the case and "
        "width of letters. A named group that is an input fills it: `请(?P<days>\\d+)天假`.",
    )
    priority: int = Field(
        default=0, ge=-1000, le=1000, description="Of several flows that match, the highest wins."
    )
    ambiguous: Ambiguous | None = Field(
        default=None,
        description="Policy for messages that match another flow equally; by default that of the file.",
    )
    confirm: Confirm = Field(
        default="model",
        description="When the user confirms before it starts: `never`, `always`, or `model`: if the "
        "model has chosen it, is not sure, and it changes something.",
    )
    input_schema: Schema = Field(
        default={},
        description="JSON Schema of its inputs, an object; what is required and missing is asked for.",
    )
    endpoint: WrittenEndpoint | None = Field(
        default=None,
        description="Its only request. Without it and without steps, the request goes to `flow_url`.",
    )
    steps: list[StepConfig] = Field(default=[], description="Its steps, in order.")
    outputs: dict[str, str] = Field(default={}, description="Names and expressions of its outputs.")
    response: str = Field(
        default="",
        description="Text for the user at its end: a template, such as `单号 {$response.body#/id}`; by "
        "default its result as it is.",
    )
    timeout_seconds: float | None = Field(
        default=None,
        gt=0,
        le=86_400,
        description="Timeout of a run, without the time spent waiting for the user; by default none.",
    )
    as_tool: bool = Field(default=False, description="Whether the server also offers it as a separate tool.")
    tool_name: str = Field(
        default="",
        description="The name of that tool, by default `flow_id`: a small letter, then small letters, "
        "digits and `_`, at most 40.",
    )
    examples: list[str] = Field(default=[], description="Example messages, for models.")

    @property
    def title(self) -> str:
        """Name of the flow for people."""
        return self.name or self.flow_id

    @property
    def only_informs(self) -> bool:
        """Whether the flow changes and asks nothing: no step does more than to choose what it says."""
        return (
            self.endpoint is None
            and bool(self.steps)
            and all(each.kind in {"say", "none"} for each in self.steps)
        )


class SkillConfig(ConfigSection):
    """Instructions for a situation that a model recognises."""

    id: str = Field(default="", max_length=64, description="Its id; by default `skill-1` and so on.")
    condition: str = Field(min_length=1, description="When it applies, for models.")
    action: str = Field(min_length=1, description="What to do then, for models.")
    tools: list[str] = Field(default=[], description="Tools that are available only while it applies.")
    confirm: Literal[False] | Question | None = Field(
        default=None,
        description="What the user is asked before one of its tools is called that may change something: a "
        "template, such as `Shall I send “{$inputs.text}”? / 要我发送“{$inputs.text}”吗？`, whose inputs are "
        "the arguments; by default Loom words it. `false`: they are not asked.",
    )
    priority: int = Field(default=0, ge=-1000, le=1000, description="The highest is first.")
    depends_on: list[str] = Field(default=[], description="Ids of skills without which it does not apply.")
    excludes: list[str] = Field(
        default=[], description="Ids of skills that do not apply where it does, unless they rank higher."
    )
    enabled: bool = Field(default=True, description="Whether it is enabled.")


class SystemToolConfig(ConfigSection):
    """A request that models may call as a tool."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="Its name: letters, digits, `_` and `-`.")
    description: str = Field(min_length=1, description="What it does and when to call it, for models.")
    parameters: Schema = Field(default={}, description="JSON Schema of its arguments, an object.")
    endpoint: WrittenEndpoint = Field(description="The request; its inputs are the arguments.")
    read_only: bool | None = Field(
        default=None, description="Whether it is read-only; by default for GET and HEAD."
    )
    idempotent: bool | None = Field(
        default=None, description="Whether it is idempotent; by default as its request."
    )
    confirm: bool | Question | None = Field(
        default=None,
        description="Whether the user is asked before a call; by default if it changes something. A text is "
        "what they are asked: a template, such as `Shall I save {$inputs.phone}?`.",
    )
    enabled: bool = Field(default=True, description="Whether it is enabled.")

    @property
    def is_read_only(self) -> bool:
        """Whether the tool is read-only, as declared or as its method implies."""
        return self.endpoint.method in {"GET", "HEAD"} if self.read_only is None else self.read_only

    @property
    def repeatable(self) -> bool:
        """Whether a call whose outcome is unknown may be repeated."""
        return self.endpoint.repeatable if self.idempotent is None else self.idempotent


def _assign_ids(skills: list[SkillConfig]) -> list[SkillConfig]:
    return [
        skill if skill.id else skill.model_copy(update={"id": f"skill-{number}"})
        for number, skill in enumerate(skills, 1)
    ]


class FlowFile(ConfigSection):
    """A flow file."""

    schema_url: str = Field(default="", alias="$schema", description="Address of this schema, for editors.")
    basic_settings: BasicSettings = Field(
        default=BasicSettings(), description="The assistant: its name, language and instructions."
    )
    model: ProviderConfigInput | None = Field(
        default=None,
        description='A language model, a text (`"deepseek"`) or an object; without one, rules decide alone.',
    )
    retrieve_knowledge_url: WrittenKnowledgeEndpoint | None = Field(
        default=None, description="An API to query for knowledge, as an address or an object."
    )
    knowledge: KnowledgeSource | None = Field(
        default=None, description="Alternatively, a source as in query.json."
    )
    knowledge_seconds: float = Field(
        default=2.0, gt=0, le=60, description="Maximum time that an answer waits for knowledge."
    )
    knowledge_cache_seconds: float = Field(
        default=300.0, ge=0, le=86400, description="How long results are cached; 0: no cache."
    )
    decision_seconds: float = Field(
        default=15.0,
        gt=0,
        le=60,
        description="How long the model may take to decide what a message means, and again to write an "
        "answer; after that it goes on without one. All that a message asks for is given 44 s at most.",
    )
    flow_url: Address = Field(
        default="",
        description="Base address for paths of endpoints, and address of the request of a flow without "
        "endpoint and steps: POST {flow_id, message, parameters, context}.",
    )
    flows: list[FlowConfig] = Field(default=[], description="The flows; of equal matches the first wins.")
    skills: Annotated[list[SkillConfig], AfterValidator(_assign_ids)] = Field(
        default=[], description="The skills: what to do in which situation."
    )
    system_tools: list[SystemToolConfig] = Field(default=[], description="Requests that models may call.")
    context: dict[str, JsonValue] = Field(
        default={},
        description="Variables of a conversation (tenantId, chatbotId…) and their values where a message "
        "brings none.",
    )
    net: NetConfig = Field(default=NetConfig(), description="Network policy.")
    ambiguous: Ambiguous = Field(
        default="llm",
        description="Policy for a message that matches several flows equally: `first` of them, `llm`: the "
        "model chooses (without one the user), `ask`: the user does.",
    )
    confidence: float = Field(
        default=0.6, ge=0, le=1, description="If the model is less sure than this, it asks instead of acting."
    )

    def flow(self, flow_id: str) -> FlowConfig | None:
        """Return the enabled flow of an id, or None."""
        return next((each for each in self.flows if each.flow_id == flow_id and each.enabled), None)

    def find_flow(self, flow_id: str) -> FlowConfig:
        """Return a flow by its id.

        Raises:
            NotFoundError: it does not exist or is disabled.
        """
        flow = self.flow(flow_id)
        if flow is None:
            known = ", ".join(each.flow_id for each in self.flows if each.enabled) or "none"
            raise NotFoundError(f"There is no flow {flow_id!r}.", advice=f"There are: {known}.")
        return flow

    def counterpart_of(self, flow: FlowConfig) -> FlowConfig:
        """Return this file's version of a flow, such as a localized one; the flow itself if it has none."""
        return self.flow(flow.flow_id) or flow

    def can_execute(self, profile: str) -> bool:
        """Return whether this file can execute runs of a profile: it has the flow, or they are of skills."""
        return profile == SKILLS_PROFILE or self.flow(profile) is not None

    def endpoint_of(self, flow: FlowConfig) -> EndpointConfig:
        """Return the request of a flow that has no steps.

        A flow without an endpoint posts its id, the message, the inputs and the context to `flow_url`.
        """
        if flow.endpoint is not None:
            return flow.endpoint
        body: dict[str, JsonValue] = {
            "flow_id": flow.flow_id,
            "message": "{$message}",
            "parameters": "{$inputs}",
            "context": "{$context}",
        }
        return EndpointConfig(method="POST", body=body)


class AgentConfigSchema(FlowFile):
    """A flow file built by a program from `basic_settings` and `tools`, which become `system_tools`."""

    system_tools: list[SystemToolConfig] = Field(
        default=[], validation_alias=AliasChoices("tools", "system_tools")
    )


_READ_ONLY_METHODS = frozenset({"GET", "HEAD"})


def has_side_effects(
    file: FlowFile, flow: FlowConfig, *, reads_only: Callable[[str], bool] | None = None
) -> bool:
    """Return whether a flow may have side effects: by a request that is not GET or HEAD, or by a tool.

    Args:
        file: the file of the flow.
        flow: the flow.
        reads_only: returns whether a tool outside of the file is read-only; by default none is.
    """
    read_only = {tool.name: tool.is_read_only for tool in file.system_tools}
    for each in _with_inner_flows(file, flow):
        if not each.steps and file.endpoint_of(each).method not in _READ_ONLY_METHODS:
            return True
        for step in iter_steps(each.steps):
            if step.operation is not None and step.operation.method not in _READ_ONLY_METHODS:
                return True
            if step.tool:
                is_read_only = read_only.get(step.tool)
                if is_read_only is None:
                    is_read_only = reads_only is not None and reads_only(step.tool)
                if not is_read_only:
                    return True
    return False


def may_wait(file: FlowFile, flow: FlowConfig, given: Collection[str]) -> bool:
    """Return whether a flow may wait for a person, an event or a time.

    `given` are the inputs that it has: a question for one of them alone is not asked.
    """
    flows = list(_with_inner_flows(file, flow))
    return any(each.confirm == "always" for each in flows) or any(
        step.confirm or step.wait_for or step.handover or (step.ask and not step.ask.is_answered_by(given))
        for each in flows
        for step in iter_steps(each.steps)
    )


def _with_inner_flows(file: FlowFile, flow: FlowConfig) -> Iterator[FlowConfig]:
    """Yield a flow and those that it runs."""
    waiting, seen = [flow], set[str]()
    while waiting:
        flow = waiting.pop()
        if flow.flow_id not in seen:
            seen.add(flow.flow_id)
            yield flow
            inner = (file.flow(step.workflow_id) for step in iter_steps(flow.steps) if step.workflow_id)
            waiting += filter(None, inner)


def flow_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a flow file, with a title and a description for each key.

    Editors use it if the file refers to it: `"$schema": "./flow.schema.json"`.
    """
    schema = FlowFile.model_json_schema()
    return {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "flow.json"}
