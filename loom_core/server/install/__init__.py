"""Installation of a server in the configuration of MCP clients, and its removal.

| module | subject |
|---|---|
| `command` | the commands `install` and `uninstall`: a change is planned, shown, then written |
| `launch` | `InstalledServer` and its launch command, an absolute and permanent one |
| `clients` | one row per client: the path of its file, the form of its entries |
| `config_file` | a file of another program: read, backed up, replaced atomically |
| `text_format`, `json_text`, `toml_text`, `yaml_text` | edit one entry, and keep every other byte |

It knows nothing of MCP's protocol and imports nothing of its SDK.
"""

from __future__ import annotations

__all__: list[str] = []
