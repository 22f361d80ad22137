"""Metric families of Loom; docs/reference/metrics.md is generated from them.

Names and labels are part of the interface: dashboards and alerts use them. Label values are of closed sets,
or named by the operator (tools, models, servers); user input never becomes a label value.
"""

from __future__ import annotations

from loom_core.observability.registry import Metric

__all__ = [
    "ACTIVE_AGENTS",
    "APPROVALS",
    "BREAKER_STATE",
    "BUILD_INFO",
    "CALLS_PEAK",
    "CALLS_RUNNING",
    "CALLS_WAITING",
    "CHANNEL_SECONDS",
    "COMPACTIONS",
    "COMPACTION_TOKENS",
    "FAMILIES",
    "FLOW_KNOWLEDGE",
    "FLOW_KNOWLEDGE_SECONDS",
    "FLOW_MESSAGE_SECONDS",
    "FLOW_REQUESTS",
    "FLOW_REQUEST_SECONDS",
    "FLOW_ROUTES",
    "FLOW_STEPS",
    "FLOW_STEP_SECONDS",
    "HTTP_CALLS",
    "HTTP_REFUSED",
    "HTTP_RELAYED",
    "HTTP_SESSIONS",
    "HTTP_STREAMS",
    "INGESTED_CHUNKS",
    "INGESTED_DOCUMENTS",
    "ITERATIONS",
    "ITERATION_SECONDS",
    "LLM_CALLS",
    "LLM_COST",
    "LLM_FAILURES",
    "LLM_SECONDS",
    "LLM_TOKENS",
    "MCP_SERVER_UP",
    "RUNS",
    "RUN_FAILURES",
    "SEARCH_SECONDS",
    "SERVED_CALLS",
    "SERVED_SECONDS",
    "TOOL_CALLS",
    "TOOL_SECONDS",
]

_QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_USUAL = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_WIDE = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SLOW = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
# All in seconds.

BUILD_INFO = Metric(
    "loom_build_info", "gauge", "Always 1; its labels are the server and its version.", ("server", "version")
)

# -- agents and runs ---------------------------------------------------------------------------------

ITERATIONS = Metric("loom_iterations_total", "counter", "Model turns started in agent runs.")
ITERATION_SECONDS = Metric(
    "loom_iteration_duration_seconds",
    "histogram",
    "Duration of a model turn with its tool calls, without waiting for people.",
    bounds=_SLOW,
)
ACTIVE_AGENTS = Metric(
    "loom_active_agents",
    "gauge",
    "Agent runs that this process executes now; those that wait for people do not count.",
)
RUNS = Metric(
    "loom_runs_total",
    "counter",
    "Finished runs by status.",
    ("kind", "status"),
    {"kind": ("agent", "flow"), "status": ("completed", "failed", "aborted")},
)
RUN_FAILURES = Metric(
    "loom_run_failures_total",
    "counter",
    "Failed runs by reason: a failure of the model, `budget`, `loop`, `hook`, `unapproved`, `step`,"
    " `changed`, `correction`, `other`.",
    ("kind", "failure"),
    {"kind": ("agent", "flow")},
)
APPROVALS = Metric(
    "loom_approvals_total",
    "counter",
    "Decisions and answers of people in runs, by kind.",
    ("action",),
)
COMPACTIONS = Metric("loom_compactions_total", "counter", "Compacted conversations.")
COMPACTION_TOKENS = Metric(
    "loom_compaction_tokens_total",
    "counter",
    "Tokens of conversations before and after compaction.",
    ("side",),
    {"side": ("before", "after")},
)

# -- tools -------------------------------------------------------------------------------------------

TOOL_CALLS = Metric(
    "loom_tool_calls_total",
    "counter",
    "Tool calls of agents and flows by status; a tool that does not exist is `unknown`.",
    ("tool_name", "status"),
    {"status": ("success", "error", "denied", "timeout", "aborted", "unknown")},
)
TOOL_SECONDS = Metric(
    "loom_tool_execution_duration_seconds",
    "histogram",
    "Duration of tool calls, without waiting for a slot or an approval.",
    ("tool_name",),
    bounds=_USUAL,
)

CALLS_RUNNING = Metric(
    "loom_tool_calls_running",
    "gauge",
    "Tool calls running in this process now; those that wait for people count, too.",
)
CALLS_WAITING = Metric(
    "loom_tool_calls_waiting",
    "gauge",
    "Tool calls that wait for a slot; see `max_concurrency` and `max_total`.",
)
CALLS_PEAK = Metric(
    "loom_tool_calls_running_peak",
    "gauge",
    "Maximum of concurrent tool calls in one scheduler of this process.",
)

# -- language models ---------------------------------------------------------------------------------

LLM_CALLS = Metric(
    "loom_llm_calls_total",
    "counter",
    "Requests to language models, for any purpose; a retried one counts once.",
)
LLM_SECONDS = Metric(
    "loom_llm_call_duration_seconds",
    "histogram",
    "Duration of requests to language models, to the end of the response, retries included.",
    ("provider", "model"),
    bounds=_SLOW,
)
LLM_FAILURES = Metric(
    "loom_llm_failures_total",
    "counter",
    "Failed requests to language models by reason (`ModelFailure`).",
    ("provider", "model", "failure"),
)
LLM_TOKENS = Metric(
    "loom_llm_tokens_total",
    "counter",
    "Tokens of answered requests. `cache_read` and `cache_write` are part of `input`, `reasoning` of"
    " `output`.",
    ("provider", "model", "kind"),
    {"kind": ("input", "output", "reasoning", "cache_read", "cache_write")},
)
LLM_COST = Metric(
    "loom_llm_cost_dollars_total",
    "counter",
    "Cost of responses in US dollars, as far as prices are known.",
    ("provider", "model"),
)

# -- others that are asked ---------------------------------------------------------------------------

BREAKER_STATE = Metric(
    "loom_breaker_state",
    "gauge",
    "Circuit breaker state of a model or host: 0 closed, 1 half-open, 2 open; the worst of several.",
    ("target",),
)
MCP_SERVER_UP = Metric(
    "loom_mcp_server_up",
    "gauge",
    "Whether a configured MCP server is connected: 1 yes, 0 no.",
    ("server",),
)

# -- knowledge ---------------------------------------------------------------------------------------

SEARCH_SECONDS = Metric(
    "loom_knowledge_search_duration_seconds",
    "histogram",
    "Duration of queries to knowledge bases.",
    ("strategy",),
    {"strategy": ("vector_first", "graph_first", "hybrid", "graph_only", "bm25")},
    _QUICK,
)
CHANNEL_SECONDS = Metric(
    "loom_knowledge_channel_duration_seconds",
    "histogram",
    "Duration of each channel of a query, in the process that owns the knowledge base.",
    ("channel",),
    {"channel": ("embedding", "lexical", "vector", "graph", "expansion", "keyword")},
    _QUICK,
)
INGESTED_DOCUMENTS = Metric(
    "loom_ingest_documents_total",
    "counter",
    "Documents of jobs by outcome.",
    ("outcome",),
    {"outcome": ("added", "updated", "moved", "unchanged", "removed", "skipped", "failed")},
)
INGESTED_CHUNKS = Metric("loom_ingest_chunks_total", "counter", "Written chunks of documents.")

# -- flows -------------------------------------------------------------------------------------------

FLOW_ROUTES = Metric(
    "loom_flow_routes_total",
    "counter",
    "Messages by action, and by what decided it.",
    ("action", "how"),
    {
        "action": (
            "flow",
            "skill",
            "tool",
            "respond",
            "clarify",
            "answer",
            "correct",
            "approve",
            "deny",
            "cancel",
            "retry",
            "greet",
            "pass_on",
        ),
        "how": ("rules", "model", "pending", "choice", "manners", "given", "none"),
    },
)
FLOW_MESSAGE_SECONDS = Metric(
    "loom_flow_message_duration_seconds",
    "histogram",
    "Duration of a message, without the runs that continue after it (`whole`), and of its stages: the trigger"
    " patterns, the decision of the model, its answer, and waiting for knowledge.",
    ("part",),
    {"part": ("whole", "rules", "decision", "answer", "knowledge")},
    _WIDE,
)
FLOW_STEPS = Metric(
    "loom_flow_steps_total",
    "counter",
    "Steps of flows by status.",
    ("status",),
    {"status": ("success", "failure", "unknown", "declined")},
)
FLOW_STEP_SECONDS = Metric(
    "loom_flow_step_duration_seconds", "histogram", "Duration of steps of flows.", bounds=_USUAL
)
FLOW_REQUESTS = Metric(
    "loom_flow_requests_total",
    "counter",
    "HTTP requests of flow files by final outcome: a class of status codes, a failure (`NetFailure`), or that"
    " no caller waited for it any longer. A retried one counts once.",
    ("method", "status"),
    {
        "method": ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
        "status": (
            "1xx",
            "2xx",
            "3xx",
            "4xx",
            "5xx",
            "refused",
            "connection",
            "interrupted",
            "timeout",
            "unusable",
            "unavailable",
            "other",
            "cancelled",
        ),
    },
)
FLOW_REQUEST_SECONDS = Metric(
    "loom_flow_request_duration_seconds",
    "histogram",
    "Duration of HTTP requests of flow files, from the first attempt to the last response.",
    ("method",),
    {"method": ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")},
    _USUAL,
)
FLOW_KNOWLEDGE = Metric(
    "loom_flow_knowledge_total",
    "counter",
    "Queries to the knowledge of a flow file: answered from the cache (`cached`), by the same query in"
    " progress (`shared`), or the outcome of a request; `dropped`: the answer was no longer needed.",
    ("outcome",),
    {"outcome": ("cached", "shared", "retrieved", "nothing", "failed", "late", "dropped")},
)
FLOW_KNOWLEDGE_SECONDS = Metric(
    "loom_flow_knowledge_duration_seconds",
    "histogram",
    "Duration of queries to the knowledge of a flow file.",
    bounds=_WIDE,
)

# -- the server itself -------------------------------------------------------------------------------

SERVED_CALLS = Metric(
    "loom_mcp_calls_total",
    "counter",
    "Calls of this server's own tools by MCP clients; a tool that does not exist is `unknown`. `error` is"
    " a tool error, which the model reads, `refused` a protocol error.",
    ("tool_name", "status"),
    {"status": ("success", "error", "refused", "cancelled")},
)
SERVED_SECONDS = Metric(
    "loom_mcp_call_duration_seconds",
    "histogram",
    "Duration of calls of this server's own tools.",
    ("tool_name",),
    bounds=_USUAL,
)
HTTP_REFUSED = Metric(
    "loom_http_refused_total",
    "counter",
    "Requests refused before they reached a tool.",
    ("reason",),
)
HTTP_RELAYED = Metric(
    "loom_http_relayed_total",
    "counter",
    "Requests that were passed on to the node that holds their session or task.",
)
HTTP_SESSIONS = Metric("loom_http_sessions", "gauge", "Sessions of the handshake era.")
HTTP_CALLS = Metric("loom_http_calls", "gauge", "Calls being answered for tokens.")
HTTP_STREAMS = Metric("loom_http_streams", "gauge", "Streams open for tokens.")

FAMILIES: tuple[Metric, ...] = tuple(each for each in list(globals().values()) if isinstance(each, Metric))
"""All metrics, in the order of this file."""
