from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import ConfigError
from loom_core.knowledge.sources.remote.json_path import JsonPath, validate_path

_ANSWER = {"data": {"items": [{"a.b": 1, "正文": "港口"}, {"x/y~z": 2}]}, "n": None}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", _ANSWER),
        ("data.items.0.正文", "港口"),
        ("/data/items/0/a.b", 1),
        ("/data/items/1/x~1y~0z", 2),
        ("data.items.2", None),
        ("data.items.99999999999999999999", None),
        ("data.items.x", None),
        ("data.items.-1", None),
        ("n.deeper", None),
        ("data.items.0.正文.0", None),
    ],
)
def test_a_path_leads_through_objects_and_lists_or_nowhere(path, found):
    assert JsonPath.of(path).find(_ANSWER) == found


@pytest.mark.parametrize("path", ["a..b", ".", "/", "/a//b", "a.", "x" * 301, ".".join("a" * 21)])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ConfigError, match="is not a path into JSON"):
        JsonPath.of(path)
    with pytest.raises(ValueError, match="is not a path into JSON"):
        validate_path(path)


def test_a_value_is_put_where_the_path_leads_and_found_there():
    fields: dict[str, object] = {}
    JsonPath.of("retrieval.top_k").assign(fields, 5)
    JsonPath.of("retrieval.分数").assign(fields, 0.5)
    assert fields == {"retrieval": {"top_k": 5, "分数": 0.5}}
    with pytest.raises(ConfigError, match="'top_k' has a value already"):
        JsonPath.of("retrieval.top_k.x").assign(fields, 1)
    with pytest.raises(ConfigError, match="names no field"):
        JsonPath.of("").assign(fields, 1)


@pytest.mark.hostile("JSON and schemas")
@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=5), st.integers())
def test_whatever_the_keys_are_a_pointer_finds_what_it_has_put(keys, value):
    pointer = "/" + "/".join(key.replace("~", "~0").replace("/", "~1") for key in keys)
    fields: dict[str, object] = {}
    JsonPath.of(pointer).assign(fields, value)
    assert JsonPath.of(pointer).find(fields) == value
