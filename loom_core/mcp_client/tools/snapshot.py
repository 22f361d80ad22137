"""All tools of all servers at one time, and each by its names."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from loom_core.errors import NotFoundError
from loom_core.mcp_client.tools.tool import ServerTool

__all__ = ["ToolSnapshot"]

_NEAREST = 3

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ToolSnapshot:
    """All tools at one time. Made by `ToolSnapshot.of`.

    Attributes:
        tools: those that can be called, in the order in which they were offered.
    """

    tools: tuple[ServerTool, ...] = ()
    _by_name: Mapping[str, ServerTool] = field(default_factory=dict[str, ServerTool])

    @classmethod
    def of(cls, tools: Iterable[ServerTool]) -> Self:
        """A snapshot of some tools; one with a name that another has before it is left out."""
        by_name: dict[str, ServerTool] = {}
        usable: list[ServerTool] = []
        for tool in tools:
            if {tool.name, tool.wire_name} & by_name.keys():
                _log.warning("the tool %s is left out: another one has its name", tool.name)
                continue
            usable.append(tool)
            by_name[tool.name] = by_name[tool.wire_name] = tool
        return cls(tuple(usable), by_name)

    def find(self, name: str) -> ServerTool:
        """The tool that people (`server:tool`) or models (`server__tool`) call so.

        Raises:
            NotFoundError: there is none; it names the nearest.
        """
        tool = self._by_name.get(name)
        if tool is None:
            raise self._unknown(name)
        return tool

    def _unknown(self, name: str) -> NotFoundError:
        names = [tool.name for tool in self.tools]
        ending = [each for each in names if each.endswith(f":{name}")]
        near = [*ending, *difflib.get_close_matches(name, names, n=_NEAREST, cutoff=0.4)]
        shown = ", ".join(dict.fromkeys(near[:_NEAREST]))
        return NotFoundError(
            f"There is no tool {name[:100]!r}.",
            advice=f"Did you mean {shown}?" if shown else "Look for another one.",
        )
