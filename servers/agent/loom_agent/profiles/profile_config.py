"""One profile as the configuration writes it: a model, its tools, and what it may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from loom_core.llm.config import ProviderConfigInput
from loom_core.llm.interface import Effort
from loom_core.runs.run import Budget
from loom_core.tools.builtin.config import BuiltinToolsConfig
from loom_core.tools.permission.rule import PermissionRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.tools.execution.scheduler import Scheduler

__all__ = [
    "EVERYTHING",
    "ApprovalsConfig",
    "BudgetConfig",
    "CompactionConfig",
    "McpConfig",
    "ModelOptions",
    "OnOff",
    "ProfileConfig",
    "SchedulerConfig",
]

EVERYTHING = "all"
"""Instead of a list of names: all that there are."""

OnOff = Literal["on", "off"]

_Names = Annotated[list[str] | Literal["all"], Field(union_mode="left_to_right")]


class _Section(BaseModel):
    # Inputs stay out of messages, as one may be a key in the wrong place.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ModelOptions(_Section):
    """What every request to the model says besides."""

    temperature: float | None = Field(
        default=None, ge=0, le=2, description="How random answers are; by default as the vendor has it."
    )
    top_p: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="The share of the likeliest words that answers are made of; by default as the vendor has "
        "it.",
    )
    effort: Effort | None = Field(default=None, description="How much it thinks before it answers.")
    max_tokens: int | None = Field(default=None, ge=1, description="How long one answer may be.")


class McpConfig(_Section):
    """Which MCP servers lend their tools."""

    servers: _Names = Field(
        default=EVERYTHING,
        description="Names of servers in mcp.json, also of some that are disabled there; or `all` that are "
        "enabled.",
    )


class BudgetConfig(_Section):
    """What one run may take at the most. Who starts it may grant less, never more."""

    iterations: int = Field(default=50, ge=1, le=1000, description="Turns of the model.")
    tokens: int | None = Field(default=None, ge=1, description="Input and output of all turns together.")
    cost: float | None = Field(
        default=None, gt=0, description="US dollars; answers whose price is not known count as nothing."
    )
    tool_calls: int | None = Field(default=None, ge=0, description="Calls that are made.")
    seconds: float | None = Field(
        default=None, gt=0, description="Time of work; waiting for a person does not count."
    )

    def budget(self) -> Budget:
        """The same for the agent."""
        return Budget(**self.model_dump())


class SchedulerConfig(_Section):
    """How many calls of tools run at the same time, and for how long; for all profiles together."""

    max_concurrency: int = Field(default=10, ge=1, description="Calls of one run at the same time.")
    max_total: int = Field(
        default=100,
        ge=1,
        description="Calls of all runs at the same time; of agents within agents again so many.",
    )
    timeout_seconds: float = Field(
        default=120.0,
        gt=0,
        description="How long a call may take, if its tool does not say it itself, as those of MCP servers "
        "and `shell` do.",
    )

    def scheduler(self) -> Scheduler:
        """The same for the agents."""
        from loom_core.tools.execution.scheduler import Scheduler

        return Scheduler(**self.model_dump())


class ApprovalsConfig(_Section):
    """Who is asked about calls that need it, and for how long."""

    via_tool: OnOff | None = Field(
        default=None,
        description="Whether the tool `agent_decide` may decide, which a model calls; by default on over "
        "stdio, where the host shows the call to its user, and off over HTTP.",
    )
    deadline_seconds: float = Field(
        default=600.0, gt=0, le=2_592_000, description="Who has not answered by then has refused."
    )
    who: list[str] = Field(
        default=[],
        description="Names of tokens whose holders decide, over HTTP, instead of who started the run; they "
        "see the runs of this profile.",
    )


class CompactionConfig(_Section):
    """When a conversation is made shorter; shares of the model's window."""

    enabled: bool = Field(default=True, description="Whether conversations are made shorter.")
    model: ProviderConfigInput | None = Field(
        default=None, description="The model that summarises, which may be a cheap one; by default the own."
    )
    window: int | None = Field(
        default=None,
        ge=1000,
        description="Tokens that the profile's model takes; by default what is known of it.",
    )
    warn_at: float = Field(default=0.80, gt=0, le=1, description="So full, a warning is due.")
    apply_at: float = Field(default=0.92, gt=0, le=1, description="So full, it is made shorter.")
    target: float = Field(default=0.50, gt=0, lt=1, description="So full it is to be then.")


class ProfileConfig(_Section):
    """A kind of agent: what drives a run that names this profile."""

    description: str = Field(default="", description="What it is for, in a sentence, for who chooses one.")
    model: ProviderConfigInput | None = Field(
        default=None,
        description="The language model, as a text or an object; by default that of `--provider`, or the "
        "first vendor whose key is in the environment; `mock` is a demonstration without a model.",
    )
    options: ModelOptions = ModelOptions()
    system_prompt: str = Field(default="", description="What the model is told first.")
    tools: BuiltinToolsConfig = Field(
        default=BuiltinToolsConfig(),
        description="Tools of Loom's own: `files`, `http`, `shell`; none of them by default, but with "
        "`--root` those for reading files.",
    )
    mcp: McpConfig = McpConfig()
    knowledge: _Names = Field(
        default=EVERYTHING,
        description="Names of knowledge bases of this home, or `all` that there are. Needs the extra `kb`.",
    )
    permissions: list[PermissionRule] = Field(
        default=[], description="Rules about calls; the strictest that fits counts."
    )
    otherwise: Literal["allow", "ask", "deny"] = Field(
        default="ask", description="What becomes of calls that no rule fits and that are not harmless."
    )
    budget: BudgetConfig = BudgetConfig()
    priority: int = Field(
        default=0,
        ge=-1000,
        le=1000,
        description="Where more calls are wanted than `scheduler` lets run, those of the highest go first.",
    )
    approvals: ApprovalsConfig = ApprovalsConfig()
    compaction: CompactionConfig = CompactionConfig()
    memory: str = Field(
        default="sqlite",
        min_length=1,
        description="What keeps the conversations of sessions: `sqlite` in the file of the runs, `in_memory` "
        "as long as the process lives, or the name of a plugin.",
    )

    def select(self, names: Literal["all"] | Sequence[str], there: Sequence[str]) -> list[str]:
        """What a list of names, or `all`, means where these are there."""
        return list(there) if names == EVERYTHING else [name for name in there if name in names]

    def asks_by_tool(self, *, over_http: bool) -> bool:
        """Whether `agent_decide` may decide for who started a run."""
        if self.approvals.via_tool is None:
            return not over_http
        return self.approvals.via_tool == "on"
