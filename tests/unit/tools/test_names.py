from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.tools.names import display_name, own_wire_name, wire_name

_WIRE = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SERVER = st.text(min_size=1, max_size=64).filter(lambda text: ":" not in text)


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("files", "read", "files__read"),
        ("my-kb", "query_all", "my-kb__query_all"),
        ("a", "b__c", "a__b__c"),
        ("memory", "add_observations", "memory__add_observations"),
    ],
)
def test_a_plain_name_says_server_and_tool(server: str, tool: str, name: str) -> None:
    assert wire_name(server, tool) == name


def test_people_read_any_script() -> None:
    assert display_name("文件", "读取") == "文件:读取"


def test_another_script_keeps_what_can_be_read_and_gets_a_hash() -> None:
    name = wire_name("files", "读取")

    assert re.fullmatch(r"files__tool_[0-9a-f]{15}", name)
    assert name != wire_name("files", "写入")


def test_names_are_the_same_in_every_run() -> None:
    assert wire_name("文件", "读取.v2") == "server__v2_ee23556f6ae94e4"


def test_a_long_name_keeps_its_beginning() -> None:
    name = wire_name("github", "create_" + "x" * 100)

    assert name.startswith("github__create_xxx")
    assert len(name) <= 64


def test_pairs_that_would_read_the_same_get_different_names() -> None:
    pairs = [("a", "b__c"), ("a__b", "c"), ("a_", "_b"), ("a", "__b"), ("a.b", "c"), ("a_b", "c"), ("a", "B")]

    assert len({wire_name(*pair) for pair in pairs}) == len(pairs)


def test_a_name_that_looks_like_a_hashed_one_is_hashed_itself() -> None:
    hashed = wire_name("files", "读取")

    assert wire_name("files", hashed.removeprefix("files__")) != hashed


@pytest.mark.slow
@given(first=st.tuples(_SERVER, st.text(min_size=1)), second=st.tuples(_SERVER, st.text(min_size=1)))
def test_every_pair_has_a_name_of_its_own_that_vendors_take(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    assert _WIRE.fullmatch(wire_name(*first))
    assert (wire_name(*first) == wire_name(*second)) == (first == second)


@pytest.mark.parametrize("name", ["read_file", "get-weather", "A1"])
def test_a_plain_name_of_our_own_stays_as_it_is(name: str) -> None:
    assert own_wire_name(name) == name


@pytest.mark.parametrize("name", ["files__read", "查询天气", "a b", "x" * 65, "", "x_0123456789abcde"])
def test_another_name_of_our_own_gets_a_hash(name: str) -> None:
    assert re.fullmatch(r".+_[0-9a-f]{15}", own_wire_name(name))
    assert _WIRE.fullmatch(own_wire_name(name))
    assert own_wire_name(name) == own_wire_name(name) != name


@given(own=st.text(max_size=70), server=_SERVER, tool=st.text(max_size=70))
def test_a_tool_of_our_own_is_called_like_no_tool_of_a_server(own: str, server: str, tool: str) -> None:
    assert own_wire_name(own) != wire_name(server, tool)
    assert own_wire_name(wire_name(server, tool)) != wire_name(server, tool)
    assert _WIRE.fullmatch(own_wire_name(own))
