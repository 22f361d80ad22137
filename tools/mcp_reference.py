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

A server is called by letters and digits of any script, `-`, `_` and `.`, at most 64 of them. What is wrong
with one entry costs that server only, and is told with line and column. Names that Loom does not know are
passed over, except under `loom`, and kept when a verb changes the file. Of two entries with one name the
last counts.

## Variables and secrets

- `${VAR}` in `command`, `args`, `env`, `cwd`, `url`, `headers`, `roots` and `oauth` stands for an
  environment variable, which must be set; `${VAR:-default}` for one that may be unset or empty. What is put
  in is not looked at again.
- A whole value of `env`, of `headers` and of a secret under `oauth` may be `env:NAME`, or `keyring:NAME`
  for what `keyring set loom NAME` has stored; in a header also behind `Bearer`.
- A server that is started gets `PATH`, `HOME`, the locale, proxies and certificates of Loom's environment,
  `LOOM_HOME`, and what its `env` says: no other variable, so no key either.

## Projects

A project's `.mcp.json` counts in the folder that it is in and below. Nothing of it is expanded, started or
asked before `mcp trust` has shown what it would do and the user has agreed; when it changes, that has to be
done again. Its servers are started in its folder. Where the user has a server of the same name, the user's
counts.
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
