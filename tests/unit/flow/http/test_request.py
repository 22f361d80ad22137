"""Requests of a flow file are filled in so that no value leaves its place."""

from __future__ import annotations

import json
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import ConfigError, InvalidInputError, NetError
from loom_core.flow.config import EndpointConfig
from loom_core.flow.expressions import ExpressionValues
from loom_core.flow.http.caller import mask_secrets
from loom_core.flow.http.request import (
    FilledRequest,
    build_request,
    is_retryable,
    is_transient_status,
    request_key,
    resolve_url,
)

BASE = "https://flow.example/api"


def filled(values: ExpressionValues | None = None, *, base: str = BASE, **written: object) -> FilledRequest:
    endpoint = EndpointConfig.model_validate(written)
    return build_request(endpoint, values or ExpressionValues(), base=base, revealed=mask_secrets)


def inputs(**given: object) -> ExpressionValues:
    return ExpressionValues(inputs=given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "base", "whole"),
    [
        ("https://a.example/x", BASE, "https://a.example/x"),
        ("/leave", BASE, "https://flow.example/api/leave"),
        ("leave", BASE + "/", "https://flow.example/api/leave"),
        ("", BASE, BASE),
        ("/leave", BASE + "?v=1", "https://flow.example/api/leave?v=1"),
        ("/leave?a=2", BASE + "?v=1", "https://flow.example/api/leave?a=2&v=1"),
        ("?a=2", BASE, "https://flow.example/api?a=2"),
    ],
)
def test_a_path_is_put_behind_the_address_of_the_flows(url: str, base: str, whole: str) -> None:
    assert resolve_url(url, base) == whole


def test_a_path_without_anything_to_put_it_behind_is_a_mistake_in_the_file() -> None:
    with pytest.raises(ConfigError, match="relative to `flow_url`"):
        resolve_url("/leave", "")


def test_get_sends_the_inputs_as_query_parameters_and_post_as_json() -> None:
    values = inputs(days=3, reason="回家 & 休息", tags=["a", "b"], gone=None)
    got = filled(values, url="/leave", method="GET")
    assert got.url.startswith("https://flow.example/api/leave?days=3&reason=")
    assert parse_qsl(urlsplit(got.url).query) == [
        ("days", "3"), ("reason", "回家 & 休息"), ("tags", "a"), ("tags", "b"),
    ]  # fmt: skip
    assert got.content == b""
    posted = filled(values, url="/leave", method="POST")
    assert posted.url == "https://flow.example/api/leave"
    assert json.loads(posted.content) == {
        "days": 3, "reason": "回家 & 休息", "tags": ["a", "b"], "gone": None,
    }  # fmt: skip
    assert posted.headers["Content-Type"] == "application/json"


def test_what_the_address_or_a_header_names_is_not_sent_twice() -> None:
    got = filled(
        inputs(id="a/b", note="x", trace="t1"),
        url="/orders/{$inputs.id}",
        method="GET",
        headers={"X-Trace": "{$inputs.trace}"},
    )
    assert got.url == "https://flow.example/api/orders/a%2Fb?note=x"
    assert got.headers["X-Trace"] == "t1"


def test_a_body_of_templates_keeps_types_and_nothing_else_is_sent() -> None:
    values = ExpressionValues(
        inputs={"days": 3, "secret": "x"}, context={"tenantId": "企业"}, message="我要请假"
    )
    got = filled(
        values,
        url="/leave",
        method="POST",
        query={"v": "2", "tenant": "{$context.tenantId}", "none": "{$inputs.none}"},
        body={"days": "{$inputs.days}", "text": "{$message}！", "none": "{$inputs.none}"},
    )
    assert json.loads(got.content) == {"days": 3, "text": "我要请假！"}
    assert parse_qsl(urlsplit(got.url).query) == [("v", "2"), ("tenant", "企业")]
    assert filled(values, url="/leave", method="POST", query={}).content == b""


def test_a_body_may_be_a_form_or_a_text() -> None:
    form = filled(
        inputs(a="1 2", b=["x", "y"]),
        url="/",
        method="POST",
        body={"a": "{$inputs.a}", "b": "{$inputs.b}"},
        content_type="application/x-www-form-urlencoded",
    )
    assert form.content == b"a=1+2&b=x&b=y"
    text = filled(inputs(a="你好"), url="/", method="POST", body="{$inputs.a}!", content_type="text/plain")
    assert text.content.decode() == "你好!"
    assert text.headers["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("value", ["..", ".", "", "../admin", "a/../../b", "..\\x", "a\nb", None, {"a": 1}])
def test_a_value_cannot_lead_to_another_path(value: object) -> None:
    with pytest.raises(InvalidInputError) as refused:
        filled(inputs(id=value), url="/orders/{$inputs.id}/cancel", method="POST")
    assert refused.value.message


@pytest.mark.hostile("addresses")
@given(st.text(max_size=30))
def test_whatever_a_value_is_the_host_and_the_rest_of_the_path_stay(value: str) -> None:
    try:
        got = filled(inputs(id=value), url="/orders/{$inputs.id}/cancel?by={$inputs.id}", method="POST")
    except InvalidInputError:
        return
    parts = urlsplit(got.url)
    assert parts.netloc == "flow.example"
    assert parts.path.startswith("/api/orders/")
    assert parts.path.endswith("/cancel")
    assert parts.path.count("/") == 4
    assert [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)] == ["by"]


@pytest.mark.hostile("addresses")
@pytest.mark.parametrize("value", ["x\r\nX-More: 1", "x\n", "张三", "a\0b"])
def test_a_header_is_filled_with_plain_ascii_on_one_line_or_refused(value: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        filled(inputs(name=value), url="/", headers={"X-Name": "n {$inputs.name} n"})
    assert refused.value.advice


def test_a_header_for_what_is_not_there_is_left_out() -> None:
    assert "X-Name" not in filled(url="/", headers={"X-Name": "{$inputs.name}"}).headers


@pytest.mark.hostile("addresses")
def test_only_the_file_refers_to_secrets_never_a_value() -> None:
    got = filled(
        inputs(name="env:HOME", key="env:HOME"),
        url="/",
        method="POST",
        headers={"X-Name": "{$inputs.name}", "Authorization": "Bearer env:TOKEN"},
        query={"q": "{$inputs.key}", "api_key": "env:KEY"},
        body={"name": "{$inputs.name}"},
    )
    assert got.headers["X-Name"] == "env:HOME"
    assert got.headers["Authorization"] == "Bearer [secret]"
    assert json.loads(got.content) == {"name": "env:HOME"}
    assert parse_qsl(urlsplit(got.url).query) == [("q", "env:HOME"), ("api_key", "[secret]")]
    assert got.has_secrets
    assert not filled(inputs(name="env:HOME"), url="/", headers={"X-Name": "{$inputs.name}"}).has_secrets


def test_a_request_does_not_show_what_may_be_secret() -> None:
    shown = repr(filled(url="/x?a=1", headers={"X-Key": "env:TOKEN"}))
    assert "TOKEN" not in shown
    assert "a=1" not in shown


def test_statuses_that_pass() -> None:
    passing = [status for status in range(100, 600) if is_transient_status(status)]
    assert {408, 425, 429, 500, 502, 503, 504, 529} <= set(passing)
    assert not {200, 301, 400, 401, 403, 404, 409, 422, 501, 505} & set(passing)


@pytest.mark.parametrize(
    ("outcome", "if_repeatable", "if_not"),
    [(503, True, False), (429, True, False), (404, False, False), (200, False, False),
     ("connection", True, True), ("interrupted", True, False), ("timeout", True, False),
     ("refused", False, False), ("unusable", False, False), ("unavailable", False, False)],
)  # fmt: skip
def test_what_may_have_been_done_is_sent_again_only_if_that_does_no_harm(
    outcome: object, if_repeatable: bool, if_not: bool
) -> None:
    what = outcome if isinstance(outcome, int) else NetError("x", failure=outcome)  # type: ignore[arg-type]
    assert is_retryable(what, repeatable=True) is if_repeatable
    assert is_retryable(what, repeatable=False) is if_not


def test_a_key_is_made_of_run_and_step_in_plain_ascii() -> None:
    assert request_key("run-1", "submit") == "run-1:submit"
    assert request_key("run-1", "pay#2/0/submit") == "run-1:pay#2/0/submit"
    key = request_key("run-1", "提交")
    assert key == "run-1:%E6%8F%90%E4%BA%A4"
    assert request_key("run-1", "a:b") != request_key("run-1:a", "b")


def test_a_long_key_is_cut_and_still_its_own() -> None:
    first, second = request_key("r" * 300, "a"), request_key("r" * 300, "b")
    assert first != second
    assert max(len(first), len(second)) <= 200
    assert first.isascii()
