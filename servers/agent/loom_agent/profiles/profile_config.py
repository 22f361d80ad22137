"""Configuration of a profile: model, tools, permissions, budget and other settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from loom_agent.profiles.context_config import ContextConfig
from loom_agent.profiles.guardrails_config import GuardrailsConfig
from loom_core.errors import ConfigError
from loom_core.llm.config import ProviderConfigInput
from loom_core.llm.interface import Effort
from loom_core.runs.run import Budget
from loom_core.tools.builtin.config import BuiltinToolsConfig
from loom_core.tools.patterns import matcher
from loom_core.tools.permission.rule import PermissionRule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_core.tools.execution.retries import ToolRetries
    from loom_core.tools.execution.scheduler import Scheduler

__all__ = [
    "COMPOSITIONS",
    "EVERYTHING",
    "ApprovalsConfig",
    "BudgetConfig",
    "CallLimitsConfig",
    "CompactionConfig",
    "HandoffConfig",
    "McpConfig",
    "ModelOptions",
    "OnOff",
    "ProfileConfig",
    "RouteConfig",
    "RouterConfig",
    "SchedulerConfig",
    "ToolRetriesConfig",
    "ToolsConfig",
    "UserMemoryConfig",
]

EVERYTHING = "all"
"""Instead of a list of names: all of them."""

COMPOSITIONS = ("chain", "parallel", "workflow", "router", "handoff")
"""The keys of a profile that make it a composition of other profiles, without an agent of its own."""

OnOff = Literal["on", "off"]

_Number = TypeVar("_Number", int, float)
_Names = Annotated[list[str] | Literal["all"], Field(union_mode="left_to_right")]


def _check_patterns(tools: dict[str, _Number]) -> dict[str, _Number]:
    for pattern in tools:
        try:
            matcher(pattern)
        except ConfigError as error:
            raise ValueError(str(error)) from None
    return tools


class _Section(BaseModel):
    # Keep inputs out of error messages, as one may be a misplaced key.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ModelOptions(_Section):
    """Options of every request to the model."""

    temperature: float | None = Field(
        default=None, ge=0, le=2, description="Sampling temperature; by default the vendor's."
    )
    top_p: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Nucleus sampling: share of the likeliest tokens to use; by default the vendor's.",
    )
    effort: Effort | None = Field(default=None, description="Reasoning effort before the answer.")
    max_tokens: int | None = Field(default=None, ge=1, description="Maximum length of one answer.")


class ToolsConfig(BuiltinToolsConfig):
    """Tools of a profile, in addition to those of MCP servers; none by default."""

    plugins: dict[str, dict[str, Any]] = Field(
        default={},
        description='Tools that other distributions register, each with its settings: `{"clock": {"zone": '
        '"UTC"}}`.',
        repr=False,
    )


class McpConfig(_Section):
    """MCP servers whose tools the profile uses."""

    servers: _Names = Field(
        default=EVERYTHING,
        description="Names of servers in mcp.json, including disabled ones; or `all` enabled servers.",
    )


class BudgetConfig(_Section):
    """Limits of one run. A caller may set lower limits for a run, never higher ones."""

    iterations: int = Field(default=50, ge=1, le=1000, description="Turns of the model.")
    tokens: int | None = Field(default=None, ge=1, description="Input and output tokens of all turns.")
    cost: float | None = Field(
        default=None, gt=0, description="US dollars; answers with an unknown price count as 0."
    )
    tool_calls: int | None = Field(default=None, ge=0, description="Tool calls.")
    seconds: float | None = Field(
        default=None, gt=0, description="Working time; waiting for a person does not count."
    )

    def budget(self) -> Budget:
        """Convert to the budget of the agent."""
        return Budget(**self.model_dump())


_Timeouts = Annotated[dict[str, Annotated[float, Field(gt=0)]], AfterValidator(_check_patterns)]


class SchedulerConfig(_Section):
    """Limits for concurrent tool calls, and their timeout; shared by all profiles."""

    max_concurrency: int = Field(default=10, ge=1, description="Concurrent calls of one run.")
    max_total: int = Field(
        default=100,
        ge=1,
        description="Concurrent calls of all runs; nested agents have this number again at each level.",
    )
    timeout_seconds: float = Field(
        default=120.0,
        gt=0,
        description="Timeout of a call, unless its tool has its own, as those of MCP servers and `shell` do.",
    )
    tools: _Timeouts = Field(
        default={},
        description='By name pattern, as in `{"github:*": 30, "report": 900}`; the first match counts. '
        "The timeouts in mcp.json, and that of `shell`, apply as well.",
    )

    def scheduler(self) -> Scheduler:
        """Create the scheduler of the agents."""
        from loom_core.tools.execution.scheduler import Scheduler

        return Scheduler(**self.model_dump())


class CallLimitsConfig(_Section):
    """The profile's own limits for tool calls, before those of `scheduler`."""

    max_concurrency: int | None = Field(
        default=None, ge=1, description="Concurrent calls of one run; by default as in `scheduler`."
    )
    timeout_seconds: float | None = Field(
        default=None, gt=0, description="Timeout of a call, by default as in `scheduler`."
    )
    tools: _Timeouts = Field(
        default={}, description="Timeouts by name pattern, before those of `scheduler`; see there."
    )


class ToolRetriesConfig(_Section):
    """Retries of tool calls that failed for a reason that passes, and for which a retry is harmless."""

    retries: int = Field(default=2, ge=0, le=20, description="Maximum number of retries of a call.")
    base: float = Field(default=0.5, ge=0, description="Maximum of the first wait, in seconds.")
    cap: float = Field(default=8.0, ge=0, description="Maximum of any wait, in seconds.")
    longest_wait: float = Field(
        default=60.0, ge=0, description="In seconds; if a service asks for a longer wait, there is no retry."
    )
    tools: Annotated[dict[str, Annotated[int, Field(ge=0, le=20)]], AfterValidator(_check_patterns)] = Field(
        default={},
        description='Another number of retries by name pattern, as in `{"github:*": 4, "pay": 0}`; the first '
        "match counts.",
    )

    def policy(self) -> ToolRetries:
        """Convert to the policy of the agent."""
        from loom_core.tools.execution.retries import ToolRetries

        return ToolRetries(**self.model_dump())


class ApprovalsConfig(_Section):
    """Who approves calls, and for how long a run waits for them."""

    via_tool: OnOff | None = Field(
        default=None,
        description="Whether the tool `agent_decide`, which a model calls, may decide; by default on over "
        "stdio, where the host shows the call to its user, and off over HTTP.",
    )
    deadline_seconds: float = Field(
        default=600.0, gt=0, le=2_592_000, description="Without an answer until then, a call is denied."
    )
    who: list[str] = Field(
        default=[],
        description="Names of tokens whose holders decide, over HTTP, instead of the run's starter; they "
        "see the runs of this profile.",
    )


class CompactionConfig(_Section):
    """Compaction of conversations; thresholds are shares of the model's context window."""

    enabled: bool = Field(default=True, description="Whether conversations are compacted.")
    model: ProviderConfigInput | None = Field(
        default=None, description="The model that summarizes, possibly a cheap one; by default the profile's."
    )
    window: int | None = Field(
        default=None,
        ge=1000,
        description="Context window of the profile's model, in tokens; by default its known value.",
    )
    warn_at: float = Field(default=0.80, gt=0, le=1, description="Context usage that causes a warning.")
    apply_at: float = Field(default=0.92, gt=0, le=1, description="Context usage that causes a compaction.")
    target: float = Field(default=0.50, gt=0, lt=1, description="Context usage after a compaction.")
    compressor: str | None = Field(
        default=None,
        min_length=1,
        description="Name of a plugin that shortens conversations in its own way, without `model`; by "
        "default Loom's.",
    )


class UserMemoryConfig(_Section):
    """Notes about users, which outlive sessions. Needs the extra `kb`, and no `--database`."""

    enabled: bool = Field(
        default=False,
        description="Whether notes are kept and shown to the model. The user is the token, or over stdio and "
        "at the command line the user of this machine; over HTTP without tokens there is no memory.",
    )
    extraction: Literal["rules", "model", "off"] = Field(
        default="rules",
        description="How notes are found in the user's words after a run: by rules, without cost; by one "
        "request to a model, whose cost counts for the run; or not at all.",
    )
    model: ProviderConfigInput | None = Field(
        default=None,
        description="The model of `extraction`, possibly a cheap one; by default the profile's.",
    )


class RouteConfig(_Section):
    """Route of a router."""

    when: str | None = Field(
        default=None,
        description="Regular expression (RE2) that takes the route if the goal contains it, without asking a "
        "model.",
    )


class RouterConfig(_Section):
    """Router: takes the first route whose rule matches; else a model chooses by the descriptions."""

    routes: dict[str, RouteConfig] = Field(min_length=1, description="The routes, by names of profiles.")
    default: str = Field(
        default="", description="The route if no rule matches, and no model chooses or the model fails."
    )


class HandoffConfig(_Section):
    """Handoff: the member that has the conversation answers, or hands it over to another member."""

    members: list[str] = Field(min_length=2, description="Names of profiles; the first one starts.")
    handoffs: dict[str, list[str]] | None = Field(
        default=None,
        description="The members that each member may hand over to; one that is not here hands over to none. "
        "By default, each may hand over to all others.",
    )
    max_handoffs: int = Field(
        default=8,
        ge=1,
        le=100,
        description="Maximum number of handoffs in a run; then a member has to answer.",
    )

    @property
    def targets(self) -> Mapping[str, Sequence[str]]:
        """The members that each member may hand over to."""
        from loom_core.agent.teams.handoff import handoff_targets

        return handoff_targets(self.members, self.handoffs)


class ProfileConfig(_Section):
    """Profile: the configuration of the agent for runs that name it."""

    description: str = Field(default="", description="Its purpose, in a sentence, for choosing a profile.")
    model: ProviderConfigInput | None = Field(
        default=None,
        description="The language model, as a text or an object; by default that of `--provider`, or the "
        "first vendor whose key is in the environment; `mock` is a demonstration without a model.",
    )
    options: ModelOptions = ModelOptions()
    system_prompt: str = Field(default="", description="Instructions for the model.")
    context: ContextConfig | None = Field(
        default=None,
        description="Data that a caller passes with a goal, for tools and instructions; by default none.",
    )
    tools: ToolsConfig = Field(
        default=ToolsConfig(),
        description="Loom's builtin tools, `files`, `http`, `shell`, and `plugins`; by default none, or with "
        "`--root` those for reading files.",
    )
    skills: list[str] = Field(
        default=[],
        description="Folders with a SKILL.md, folders of such folders, or glob patterns, relative to the "
        "file: instructions that the model loads when a task needs them.",
    )
    mcp: McpConfig = McpConfig()
    knowledge: _Names = Field(
        default=EVERYTHING,
        description="Names of knowledge bases of this home, or `all` of them. Needs the extra `kb`.",
    )
    permissions: list[PermissionRule] = Field(
        default=[], description="Rules about calls; the strictest matching rule applies."
    )
    otherwise: Literal["allow", "ask", "deny"] = Field(
        default="ask", description="Action for calls that match no rule and are not harmless."
    )
    guardrails: GuardrailsConfig = GuardrailsConfig()
    budget: BudgetConfig = BudgetConfig()
    tool_retries: ToolRetriesConfig = ToolRetriesConfig()
    call_limits: CallLimitsConfig = CallLimitsConfig()
    priority: int = Field(
        default=0,
        ge=-1000,
        le=1000,
        description="If calls have to wait for the `scheduler`, those with the highest priority go first.",
    )
    approvals: ApprovalsConfig = ApprovalsConfig()
    compaction: CompactionConfig = CompactionConfig()
    memory: str = Field(
        default="sqlite",
        min_length=1,
        description="Memory for the conversations of sessions: `sqlite` in the journal file, `in_memory` as "
        "long as the process, or the name of a plugin.",
    )
    user_memory: UserMemoryConfig = UserMemoryConfig()
    agents: list[str] = Field(
        default=[],
        description="Names of profiles that the model may call as tools; it chooses by their `description`.",
    )
    chain: list[str] = Field(
        default=[],
        description="Instead of a model: profiles that work one after another, each with the output of the "
        "previous one as its goal.",
    )
    parallel: list[str] = Field(
        default=[], description="Instead of a model: profiles that work on the goal at the same time."
    )
    workflow: dict[str, list[str]] = Field(
        default={},
        description="Instead of a model: profiles, each with the list of those that it waits for, whose "
        "outputs it gets as its goal.",
    )
    router: RouterConfig | None = Field(
        default=None, description="Instead of working itself, choose one of several profiles for the goal."
    )
    handoff: HandoffConfig | None = Field(
        default=None,
        description="Instead of working itself, let the profile that has the conversation hand it over.",
    )

    @property
    def composition(self) -> str:
        """The key in `COMPOSITIONS` that is set; empty for an agent with a model."""
        return next((kind for kind in COMPOSITIONS if getattr(self, kind)), "")

    @property
    def members(self) -> Mapping[tuple[str | int, ...], str]:
        """The names of the profiles that this one uses, by their place in it."""
        listed: dict[tuple[str, ...], Sequence[str]] = {
            ("agents",): self.agents,
            ("chain",): self.chain,
            ("parallel",): self.parallel,
            ("handoff", "members"): () if self.handoff is None else self.handoff.members,
        }
        found: dict[tuple[str | int, ...], str] = {
            (*key, number): name for key, names in listed.items() for number, name in enumerate(names)
        }
        found |= {("workflow", name): name for name in self.workflow}
        routes = () if self.router is None else self.router.routes
        return found | {("router", "routes", name): name for name in routes}

    @property
    def last_members(self) -> Sequence[str]:
        """Names of the members of a composition whose outputs are its own; see `is_answered_by_one`."""
        if self.chain:
            return self.chain[-1:]
        if self.router is not None:
            return [*self.router.routes]
        if self.handoff is not None:
            return self.handoff.members
        waited = {name for after in self.workflow.values() for name in after}
        return [*self.parallel, *(name for name in self.workflow if name not in waited)]

    @property
    def is_answered_by_one(self) -> bool:
        """Whether one of several members answers: which one depends on the run."""
        return self.router is not None or self.handoff is not None

    @property
    def needs_model(self) -> bool:
        """Whether a model takes part: the agent's own, or one that chooses between the routes of a router."""
        if self.router is None:
            return not self.composition
        rules = {name for name, route in self.router.routes.items() if route.when is not None}
        return self.model is not None or bool(set(self.router.routes) - rules - {self.router.default})

    @model_validator(mode="after")
    def _has_known_placeholders(self) -> Self:
        if self.context is not None:
            self.context.check_placeholders(self.system_prompt)
        return self

    def select(self, names: Literal["all"] | Sequence[str], there: Sequence[str]) -> list[str]:
        """Return the available names that a list, or `all`, selects."""
        return list(there) if names == EVERYTHING else [name for name in there if name in names]

    def asks_by_tool(self, *, over_http: bool) -> bool:
        """Whether `agent_decide` may decide for the starter of a run."""
        if self.approvals.via_tool is None:
            return not over_http
        return self.approvals.via_tool == "on"
