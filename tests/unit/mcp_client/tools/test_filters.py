from __future__ import annotations

from loom_core.mcp_client.tools.filters import ToolFilter


def test_every_tool_may_be_used_where_nothing_is_said() -> None:
    assert ToolFilter().allows("anything")


def test_only_what_fits_a_pattern_is_allowed() -> None:
    allowing = ToolFilter(allow=("read_*", "列出"))

    assert [allowing.allows(name) for name in ("read_file", "列出", "write_file", "Read_file")] == [
        True,
        True,
        False,
        False,
    ]


def test_what_is_denied_is_denied_whatever_is_allowed() -> None:
    assert not ToolFilter(allow=("*", "delete_all"), deny=("delete_*",)).allows("delete_all")


def test_nothing_is_allowed_where_no_pattern_is_given() -> None:
    assert not ToolFilter(allow=()).allows("read")
