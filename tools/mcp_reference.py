"""Writes docs/reference/mcp-json.md: the keys of `mcp.json`.

    python -m tools.reference mcp

The page is made from `Entry`, `LoomSection` and `OAuthConfig`; a test compares it with the file.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from loom_core.mcp_client.configuration.entry import Entry, LoomSection
from loom_core.mcp_client.configuration.oauth_config import OAuthConfig
from tools.provider_reference import settings, table

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "mcp-json.md"

_HEAD = """\
# Other MCP servers: `mcp.json`

Made by `python -m tools.reference` from the code; do not edit.

Loom's servers that use other MCP servers find them in `mcp.json` in Loom's folder (`$LOOM_HOME`, else
`~/.loom`). It is written as other hosts write theirs, and may have comments and trailing commas:

```jsonc
{
  "mcpServers": {
    "文件": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/path/to/文档"]},
    "github": {
      "url": "https://host/mcp",
      "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"},
      "loom": {"deny": ["delete_*"], "call_seconds": 60}
    }
  }
}
```

The verbs of `mcp` change and examine it: `mcp list`, `add`, `remove`, `test`, `import`, `login`, `logout`,
`trust`, `approve`, for example `loom-query-server mcp add 文件 -- npx -y
@modelcontextprotocol/server-filesystem /path/to/文档`.

The name of a server consists of letters and digits of any script, `-`, `_` and `.`, at most 64. An error in
an entry affects that server only, and is reported with line and column. Unknown keys are ignored, except
under `loom`, and kept when a verb changes the file. Of two entries with the same name the last one is used.

## Variables and secrets

- `${VAR}` in `command`, `args`, `env`, `cwd`, `url`, `headers`, `roots` and `oauth` is replaced by
  an environment variable, which must be set; `${VAR:-default}` allows it to be unset or empty. The inserted
  text is not expanded again.
- The whole value in `env`, in `headers` or of a secret under `oauth` may be `env:NAME`, or `keyring:NAME`
  for a secret stored by `keyring set loom NAME`; in a header also after `Bearer`.
- A server that Loom starts inherits `PATH`, `HOME`, locale, proxies and certificates of Loom's environment,
  and gets `LOOM_HOME` and its `env`: no other variable, so no keys.

## Projects

A project's `.mcp.json` applies to its folder and the folders below. Nothing in it is expanded, started or
connected to before `mcp trust` has shown what it would do and the user has agreed; a changed file has to be
trusted again. Its servers are started in its folder. If the user has a server of the same name, that one is
used.
"""

_SECTIONS: dict[str, type[BaseModel]] = {
    "An entry": Entry,
    "`loom`": LoomSection,
    "`loom.oauth`": OAuthConfig,
}


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for title, model in _SECTIONS.items():
        parts += [f"## {title}", table(settings(model))]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
