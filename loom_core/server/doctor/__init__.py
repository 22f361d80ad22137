"""What every server's `doctor` looks at. None of it changes anything, and nothing can make it wait for long.

| module | what it is for |
|---|---|
| `examination` | `examine`: runs checks side by side, each with its deadline |
| `program` | Python, and the packages against what is required |
| `home` | Loom's folder: writable, and with room |
| `port`, `port_holder` | whether a port is free, and who has it |
| `keys` | which keys the environment has, never what they are |
| `telemetry` | that no dependency reports to its maker, and what one has left |
| `self_test`, `stdio_probe` | the server started as a host starts it, and spoken with in both eras |
| `hosts` | what the configurations of MCP clients say of the server |
| `redaction` | a report that people can paste into an issue |

A `doctor` ends with exit code 0 if there is no problem (there may be warnings), and 1 if there is one.
"""

from __future__ import annotations

__all__: list[str] = []
