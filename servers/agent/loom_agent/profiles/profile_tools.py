"""The tools that a profile configures: Loom's built-in ones, and those of installed plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import ConfigError, LoomError
from loom_core.tools.interface import Tool

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from loom_agent.profiles.profile_config import ToolsConfig

__all__ = ["profile_tools"]


def profile_tools(config: ToolsConfig, *, folder: Path) -> list[Tool]:
    """Create the configured tools. Blocks for a moment.

    Args:
        config: the configuration.
        folder: base of its relative paths.

    Raises:
        ConfigError: a built-in tool cannot work as configured, a plugin is not installed, or it rejects its
            settings.
    """
    from loom_core.tools.builtin.config import builtin_tools

    plugins = [_create_plugin(name, settings) for name, settings in config.plugins.items()]
    return [*builtin_tools(config, folder=folder), *plugins]


def _create_plugin(name: str, settings: Mapping[str, Any]) -> Tool:
    from loom_core.installation import how_to_install
    from loom_core.plugins import create, list_registered

    # Built-in tools have sections of their own, with their own safeguards.
    installed = list_registered("tool", built_in=False)
    if name not in installed:
        raise ConfigError(
            f"There is no tool plugin {name!r}. Installed are: {', '.join(installed) or 'none'}.",
            advice=f"Correct the name, or add its distribution. {how_to_install('DISTRIBUTION')}",
        )
    try:
        made = cast("object", create("tool", name, **settings))
    except LoomError:
        raise
    except Exception as error:
        raise ConfigError(
            f"The tool plugin {name!r} failed: {type(error).__name__}: {error}",
            advice="Correct its settings, or report this to its authors.",
        ) from error
    if not isinstance(made, Tool):
        raise ConfigError(
            f"The tool plugin {name!r} returned {type(made).__name__}, which is not a tool.",
            advice="Report this to its authors.",
        )
    return made
