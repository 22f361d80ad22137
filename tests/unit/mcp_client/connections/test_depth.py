from __future__ import annotations

import sys

import pytest

from loom_core.mcp_client.configuration.server_config import ServerConfig
from loom_core.mcp_client.connections.depth import MAX_DEPTH, Lineage
from loom_core.mcp_client.connections.errors import FaultError


def entry(*args: str, **fields) -> ServerConfig:
    return ServerConfig(name="查询", transport="stdio", command=sys.executable, args=args, **fields)


@pytest.mark.hostile("MCP servers")
def test_a_child_is_one_deeper_and_four_in_a_row_are_refused():
    lineage = Lineage()
    for number in range(MAX_DEPTH):
        config = entry(str(number))
        lineage.check(config)
        lineage = Lineage.of_process(environment=lineage.environment_of(config))
        assert lineage.depth == number + 1
    with pytest.raises(FaultError, match="3 programs are above"):
        lineage.check(entry("another"))


def test_an_entry_is_not_started_by_what_it_has_started():
    config = entry("serve", env={"LOOM_HOME": "/a"})
    below = Lineage.of_process(environment=Lineage().environment_of(config))
    with pytest.raises(FaultError, match="started by it"):
        below.check(config)
    below.check(entry("serve", env={"LOOM_HOME": "/b"}))
    below.check(entry("serve", cwd="/"))


def test_a_server_that_is_running_is_only_too_deep():
    remote = ServerConfig(name="web", transport="http", url="http://127.0.0.1:1/mcp")
    Lineage(depth=2).check(remote)
    with pytest.raises(FaultError):
        Lineage(depth=3).check(remote)


@pytest.mark.parametrize("said", ["", "-1", "二", "²", "99999", "1.5"])
def test_nonsense_in_the_environment_counts_as_nothing(said):
    assert Lineage.of_process(environment={"LOOM_DEPTH": said}).depth == 0


def test_what_a_child_is_told_shows_no_secret():
    told = Lineage().environment_of(entry(env={"KEY": "sk-secret-value"}))
    assert "sk-secret-value" not in str(told)
