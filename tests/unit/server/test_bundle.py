from __future__ import annotations

from itertools import repeat

from loom_core.server.cli.command_line import bundled_line


def test_what_is_chosen_goes_to_its_option_and_what_is_not_goes_nowhere():
    options = ("--config", "--provider")
    assert bundled_line(["/家/a.json", "deepseek"], options=options) == [
        "serve", "--config", "/家/a.json", "--provider", "deepseek",
    ]  # fmt: skip
    assert bundled_line(["${user_config.config}", "mock"], options=options) == ["serve", "--provider", "mock"]
    assert bundled_line(["${user_config.config}", ""], options=options) == ["serve"]
    assert bundled_line([], options=options) == ["serve"]


def test_an_option_may_be_there_as_often_as_something_is_chosen():
    line = bundled_line(["文档", "b"], options=repeat("--root"))
    assert line == ["serve", "--root", "文档", "--root", "b"]
