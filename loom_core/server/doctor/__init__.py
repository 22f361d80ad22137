"""Checks of every server's `doctor`. They change nothing, and each has a deadline.

| module | what it is for |
|---|---|
| `check_runner` | `run_checks`: runs checks concurrently, each with its deadline |
| `checks` | the checks of any server: packages, clients, folder, audit, telemetry; a report to show |
| `port` | whether a port is free, and which process has it |
| `language_model` | which keys the environment has, never what they are; whether a model can be asked |
| `runs` | which runs wait or were left |
| `self_test` | the server started as a host starts it, and spoken with in both eras |

A `doctor` ends with exit code 0 if there is no problem (there may be warnings), and 1 if there is one.
"""

from __future__ import annotations

__all__: list[str] = []
