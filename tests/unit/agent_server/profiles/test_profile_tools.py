"""Tools of a profile that other distributions register."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loom_agent.command_line.doctor import own_checks
from loom_agent.profiles.profile_config import ToolsConfig
from loom_agent.profiles.profile_tools import profile_tools

from loom_core.errors import ConfigError
from loom_core.plugins import register
from loom_core.server.doctor.checks import run_paste_safe
from loom_core.tools import Tool, tool
from tests.fixtures.distributions import install, run_with


@register("tool", "test-clock")
def make_clock(zone: str = "UTC") -> Tool:
    if zone == "Nowhere":
        raise LookupError("no such zone")

    @tool(name="test_time", read_only=True)
    def test_time() -> str:
        return f"noon in {zone}"

    return test_time


@register("tool", "test-no-tool")
def make_text() -> str:
    return "a text"


def test_an_installed_tool_works_with_the_settings_of_the_profile(configure: Any, tmp_path: Path) -> None:
    module = """
        from loom_core.plugins import register
        from loom_core.tools import tool

        @register("tool", "clock")
        def clock(zone="UTC"):
            @tool(name="time_now", read_only=True, open_world=False)
            def time_now() -> str:
                return f"noon in {zone}"
            return time_now
    """
    folder = install(
        tmp_path / "site", "loom_tools_clock", entry_points="c = loom_clock", modules={"loom_clock": module}
    )
    file = configure(default={"tools": {"plugins": {"clock": {"zone": "青岛"}}}})
    done = run_with(
        f"""
        sys.stdout.reconfigure(encoding="utf-8")
        from loom_agent.cli import run
        run(["run", "use time_now {{}}", "--quiet", "--home", {str(file.parent)!r}])
        """,
        folder,
    )
    assert "noon in 青岛" in done.stdout


@pytest.mark.parametrize(
    ("plugins", "message", "advice"),
    [
        (
            {"test-clok": {}},
            r"no tool plugin 'test-clok'. Installed are: .*test-clock",
            "its distribution",
        ),
        ({"shell": {"root": "."}}, "no tool plugin 'shell'", "Correct the name"),
        ({"test-clock": {"zon": 1}}, "'zon'", "It takes: zone='UTC'"),
        ({"test-clock": {"zone": "Nowhere"}}, "'test-clock' failed: LookupError: no such", "its settings"),
        ({"test-no-tool": {}}, "returned str, which is not a tool", "its authors"),
    ],
)
def test_plugins_that_cannot_be_used_are_refused(
    plugins: dict[str, Any], message: str, advice: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        profile_tools(ToolsConfig(plugins=plugins), folder=tmp_path)
    assert advice in refused.value.advice


async def test_doctor_knows_plugins_and_the_names_of_their_tools(configure: Any, settings: Any) -> None:
    rules = [{"action": "allow", "tool": "test_time"}, {"action": "allow", "tool": "test_tim"}]
    configure(
        good={"tools": {"plugins": {"test-clock": {}}}, "permissions": rules},
        bad={"tools": {"plugins": {"test-clok": {}}}, "permissions": rules},
    )
    report = await run_paste_safe(own_checks(settings()), program="loom-agent-server", version="")
    rule, plugin = report.sections[0].findings
    assert (rule.code, plugin.code) == ("rule-without-tool", "tools-unusable")
    assert rule.remedy.startswith("Did you mean 'test_time'? ")
    assert "'bad'" in plugin.message
