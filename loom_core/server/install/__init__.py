"""Installation of a server in the configuration of MCP clients, and its removal.

| module | what it is for |
|---|---|
| `command` | the commands `install` and `uninstall`: a change is worked out, shown, then written |
| `launch` | `InstalledServer`, what a client is to start: the command that will still start it tomorrow |
| `clients` | one row per client: where its file is, what its entries look like |
| `config_file` | a file of another program: read as it is, backed up, replaced atomically |
| `text_format`, `json_text`, `toml_text`, `yaml_text` | editing one entry, and no other byte |

It knows nothing of MCP's protocol and imports nothing of its SDK.
"""

from __future__ import annotations

__all__: list[str] = []
