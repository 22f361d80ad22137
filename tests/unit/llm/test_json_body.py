from __future__ import annotations

import json
from types import MappingProxyType

import pytest

from loom_core.errors import InvalidInputError
from loom_core.llm.json_body import encode_body, json_body


def test_what_json_and_utf8_cannot_hold_is_said_otherwise() -> None:
    body = json_body(
        {
            "半\ud83d": ["好\udc00", ("甲", 1.5, 2, None, True)],
            "numbers": {"x": float("nan"), "y": float("-inf")},
            "map": MappingProxyType({1: "😀"}),
        }
    )
    assert json.dumps(body["半\ud83d"], ensure_ascii=False) == '["好?", ["甲", 1.5, 2, null, true]]'
    assert body["numbers"] == {"x": "nan", "y": "-inf"}
    assert body["map"] == {"1": "😀"}


def test_names_inside_fields_are_cleaned_too() -> None:
    text = json.dumps(json_body({"a": {"\ud800": 1}}), ensure_ascii=False, allow_nan=False)
    assert text.encode() == b'{"a": {"?": 1}}'


def test_names_that_are_no_texts_become_texts() -> None:
    assert json.loads(encode_body({"a": {(1, "二"): {2: 3}}})) == {"a": {"(1, '二')": {"2": 3}}}
    assert json_body({(1, 2): MappingProxyType({})}) == {"(1, 2)": {}}  # type: ignore[dict-item]


def test_what_is_no_json_is_named_with_its_field() -> None:
    with pytest.raises(InvalidInputError, match=r"The field 'metadata' .* JSON has no set"):
        json_body({"metadata": {"tags": {"a"}}})


@pytest.mark.hostile("JSON and schemas")
@pytest.mark.parametrize("pair", [("[", "]"), ('{"a":', "}")])
def test_what_is_nested_too_deeply_is_named_with_its_field(pair: tuple[str, str]) -> None:
    fine = json.loads(pair[0] * 128 + "1" + pair[1] * 128)
    assert json_body({"extra": fine}) == {"extra": fine}
    with pytest.raises(InvalidInputError, match=r"The field 'extra' .* nested too deeply"):
        json_body({"extra": [fine]})


@pytest.mark.parametrize("number", [10**5000, -(10**5000), {10**5000: 1}], ids=["great", "small", "name"])
def test_a_number_that_no_one_writes_out_is_named_with_its_field(number: object) -> None:
    with pytest.raises(InvalidInputError, match=r"The field 'extra' .* digit"):
        encode_body({"extra": number})
    assert json.loads(encode_body({"extra": [10**4000, float("nan")]})) == {"extra": [10**4000, "nan"]}


@pytest.mark.hostile("JSON and schemas")
def test_what_holds_itself_is_nested_too_deeply() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        json_body({"extra": endless})


def test_a_sound_body_is_encoded_as_it_is() -> None:
    assert (
        encode_body({"messages": [{"content": "好"}], "n": 1.5})
        == '{"messages":[{"content":"好"}],"n":1.5}'.encode()
    )


@pytest.mark.parametrize("messages", [1, 1000])
def test_what_json_and_utf8_cannot_hold_is_encoded_otherwise(messages: int) -> None:
    bad = {"半\ud83d": MappingProxyType({"x": float("inf")})}
    assert json.loads(encode_body({"messages": [bad] * messages})) == {
        "messages": [{"半?": {"x": "inf"}}] * messages
    }


@pytest.mark.hostile("JSON and schemas")
def test_many_messages_may_be_long_but_none_deep() -> None:
    flat, deep = {"content": [{"text": "{[" * 100}]}, json.loads("[" * 128 + "]" * 128)
    assert json.loads(encode_body({"messages": [flat] * 500})) == {"messages": [flat] * 500}
    with pytest.raises(InvalidInputError, match=r"The field 'messages' .* nested too deeply"):
        encode_body({"messages": [flat, deep]})
