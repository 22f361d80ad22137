"""Checks of every server's `doctor`. They change nothing, and each has a deadline.

| module | subject |
|---|---|
| `check_runner` | `run_checks`: runs checks concurrently, each with its deadline |
| `checks` | the checks of any server: packages, clients, folder, audit, telemetry; a report to show |
| `port` | whether a port is free, and which process has it |
| `language_model` | which keys the environment has, without their values; whether a model is usable |
| `runs` | runs that wait for input or were abandoned |
| `self_test` | start the server as a host does, and test both protocol eras |

A `doctor` ends with exit code 0 if there is no problem (there may be warnings), and 1 if there is one.
"""

from __future__ import annotations

__all__: list[str] = []
