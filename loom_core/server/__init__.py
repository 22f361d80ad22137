"""The server layer: the one place where Loom touches the server side of the MCP SDK.

| module | what it is for |
|---|---|
| `run` | `serve`: what a server's command calls; safe to import before anything else |
| `factory` | `LoomServer`: tools, resources, prompts and completions, registered under the house rules |
| `tool` | `Tool`, `ToolWording`: one function as the protocol sees it |
| `searching`, `search_arguments` | a tool that searches, worded from its sources; arguments of such tools |
| `citing` | `citation`, `passages_text`, `reading_text`: what was found, quoted with where it is from |
| `chatgpt` | `register_chatgpt_tools`: the profile `chatgpt` |
| `results` | `tool_result`, `TextBudget`: what a tool answers, and how long it may be |
| `content` | `Image`, `Audio`, `Embedded`: what answers and messages hold besides text |
| `context`, `progress` | `ToolContext`, `progress`: what a tool knows about the call it serves |
| `asking` | `ask`, `consent`: the user is asked, in whatever way the client can |
| `client_input`, `request_state` | the ways to get something from a client; the sealed state of round trips |
| `tasks` | `become_task`: a call that goes on as a task; the Tasks extension |
| `task`, `task_board` | one task, and all of them |
| `resource` | `ResourceContent`, `ResourceEntry`, `ResourcePage` |
| `prompt` | `PromptMessage`: what a host offers as a command |
| `tools`, `resources`, `prompts`, `completions`, `changes` | the protocol's requests about each of them |
| `caller` | `Caller`, `current_caller`: who is asking, and what they may do |
| `tokens`, `token_command` | bearer tokens: the file of their hashes, and the command that makes them |
| `oauth`, `signing_keys`, `authentication` | access tokens of an issuer; whose request it is |
| `admission` | what stands around every request of the protocol |
| `http_app`, `http_gate`, `limits`, `sessions`, `connections`, `refusal` | what stands around HTTP |
| `http_options` | the options of `serve --http` |
| `metrics_file` | the numbers in a file, for servers that nobody can ask over HTTP |
| `stdio`, `http` | the two transports |
| `handshake` | `Introduction`: `initialize` and `server/discover`, answered before the SDK is loaded |
| `negotiation` | a client may probe before it chooses an era of the protocol |
| `install` | the commands `install` and `uninstall`, for the clients' configurations |
| `bundle` | what a host says that runs a server out of an MCPB bundle |
| `mcp_options`, `mcp_command`, `mcp_front` | the command `mcp`: its verbs, what they do, what they print |
| `mcp_list`, `mcp_file`, `mcp_entries`, `mcp_importing`, `mcp_trust`, `mcp_probe` | each verb's own |
| `mcp_report` | what a verb has to tell |
| `command_line`, `console` | what the command lines of all servers share; writing to a terminal |
| `standard_commands` | the commands that every server has, declared |
| `server_program` | `ServerProgram`, `run_server`: what they do, for a server that says what is its own |
| `reading` | a stretch of a document, no longer than asked for |

This package imports a module only when one of its names is asked for: `run` and `stdio` must be importable,
and standard output claimed, before the SDK and everything else a server needs is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.server.calls.context import ToolContext
    from loom_core.server.protocol.factory import LoomServer
    from loom_core.server.protocol.results import ToolReply, tool_result
    from loom_core.server.serving.run import serve

__all__ = [
    "LoomServer",
    "ToolContext",
    "ToolReply",
    "serve",
    "tool_result",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "LoomServer": ".protocol.factory",
            "ToolContext": ".calls.context",
            "ToolReply": ".protocol.results",
            "serve": ".serving.run",
            "tool_result": ".protocol.results",
        },
    )
