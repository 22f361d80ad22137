"""Requests of flows against a real server: retries, keys, deadlines, limits, circuit breakers."""

from __future__ import annotations

import re
import socket
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import anyio
import pytest

from loom_core.errors import ConfigError, InvalidInputError, NetError
from loom_core.flow.expressions import ExpressionValues


def hang_up(asked, connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)
    raise OSError("closed")


def never(asked, connection: socket.socket) -> None:
    connection.recv(1)  # until the client gives up
    raise OSError("closed")


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


async def failure(asking) -> NetError:
    with pytest.raises(NetError) as failed:
        await asking
    assert failed.value.advice
    assert failed.value.__cause__ is None
    assert failed.value.__context__ is None
    return failed.value


async def test_an_answer_comes_as_data_with_its_status_and_headers(caller, api, endpoint) -> None:
    url = api.on("/orders/7", (201, {"编号": 7, "items": [1, 2]}, {"X-Trace": "t"}))
    answer = await caller.call(endpoint(url, "GET"), ExpressionValues())
    assert (answer.status, answer.body, answer.attempts) == (201, {"编号": 7, "items": [1, 2]}, 1)
    assert answer.headers["x-trace"] == "t"
    assert answer.url == url
    assert answer.is_success
    assert answer.key == ""
    assert answer.seconds > 0


@pytest.mark.parametrize(
    ("sent", "kind", "body"),
    [(b'{"a": 1}', "text/html; charset=utf-8", {"a": 1}), (b"\xef\xbb\xbf[1]", "", [1]),
     (b"7", "application/json", 7), ("完成".encode("gb18030"), "text/plain", "完成"),
     ("完成".encode("gbk"), "text/plain; charset=gbk", "完成"), (b"", "application/json", None),
     (b"  ", "", None), (b"\x89PNG\0", "image/png", None), (b"\0\1", "", None),
     (b"{broken", "application/json", "{broken"), (b'{"a": NaN}', "application/json", '{"a": NaN}'),
     (b'{"a": 1e999}', "application/json", '{"a": 1e999}'),
     (b'{"a": "\\ud800"}', "application/json", {"a": "?"}),
     (b"[" * 5000, "application/json", "[" * 5000), (b"<html>no</html>", "text/html", "<html>no</html>")],
)  # fmt: skip
async def test_an_answer_is_read_as_what_it_is(sent: bytes, kind: str, body, caller, api, endpoint) -> None:
    url = api.server.answers("/a", sent, **({"Content_Type": kind} if kind else {}))
    assert (await caller.call(endpoint(url, "GET"), ExpressionValues())).body == body


async def test_one_connection_serves_many_requests_that_may_be_repeated(caller, api, endpoint) -> None:
    url = api.on("/a", {"ok": True})
    for _ in range(5):
        await caller.call(endpoint(url, "POST", idempotent=True), ExpressionValues(inputs={"a": 1}))
    assert api.server.connections == 1
    for _ in range(2):
        await caller.call(endpoint(url, "POST"), ExpressionValues(inputs={"a": 1}))
    assert api.server.connections == 3


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
@pytest.mark.parametrize("passing", [408, 425, 429, 500, 502, 503, 504])
async def test_a_repeatable_request_is_sent_again_after_a_status_that_passes(
    method: str, passing: int, caller, api, endpoint
) -> None:
    url = api.on("/a", passing, passing, 204)
    answer = await caller.call(endpoint(url, method), ExpressionValues())
    assert (answer.status, answer.attempts, len(api.asked)) == (204, 3, 3)


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize("bad", [408, 429, 500, 503, hang_up])
async def test_a_post_is_sent_again_only_if_the_server_knows_it_again(
    method: str, bad, caller, api, endpoint
) -> None:
    url = api.on("/a", bad, 201)
    once = caller.call(endpoint(url, method), ExpressionValues(), run_id="r1", step_id="s")
    if bad is hang_up:
        assert (await failure(once)).failure == "interrupted"
    else:
        assert (await once).status == bad
    assert len(api.asked) == 1

    url = api.on("/b", bad, 201)
    answer = await caller.call(
        endpoint(url, method, idempotent=True), ExpressionValues(), run_id="r1", step_id="s"
    )
    assert (answer.status, answer.attempts) == (201, 2)
    assert [asked.headers["idempotency-key"] for asked in api.asked] == ["r1:s"] * 3


@pytest.mark.parametrize("lasting", [400, 401, 403, 404, 409, 422, 501])
async def test_a_refusal_is_the_answer(lasting: int, caller, api, endpoint) -> None:
    url = api.on("/a", lasting, 200)
    answer = await caller.call(endpoint(url, "GET"), ExpressionValues())
    assert (answer.status, answer.attempts, answer.is_success) == (lasting, 1, False)


async def test_the_last_answer_counts_when_all_attempts_are_used_up(caller, api, endpoint) -> None:
    url = api.on("/a", (503, {"msg": "busy"}))
    answer = await caller.call(endpoint(url, "GET", retries=3), ExpressionValues())
    assert (answer.status, answer.body, answer.attempts) == (503, {"msg": "busy"}, 4)
    assert (await caller.call(endpoint(url, "GET", retries=0), ExpressionValues())).attempts == 1


async def test_no_one_there_is_tried_again_whatever_the_method_as_nothing_was_done(caller, endpoint) -> None:
    url = f"http://127.0.0.1:{unused_port()}/"
    error = await failure(caller.call(endpoint(url, "POST", retries=2), ExpressionValues()))
    assert error.failure == "connection"
    assert error.message.endswith("It was tried 3 times.")


async def test_an_error_after_one_that_may_have_been_done_says_that_it_may(callers, endpoint, api) -> None:
    def once(asked, connection: socket.socket) -> None:
        api.server.close()  # the next request finds no listener
        hang_up(asked, connection)

    url = api.on("/a", once)
    async with callers() as caller:
        error = await failure(caller.call(endpoint(url, "PUT", retries=1), ExpressionValues()))
    assert "It was tried 2 times." in error.message
    assert error.failure == "interrupted"


@pytest.mark.slow
async def test_a_server_is_waited_for_as_it_asks(callers, api, endpoint) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=1), usegmt=True)
    url = api.on("/a", (429, None, {"Retry-After": "0.2"}), (503, None, {"Retry-After": soon}), {"ok": 1})
    async with callers() as caller:
        answer = await caller.call(endpoint(url, "GET"), ExpressionValues())
    assert answer.attempts == 3
    assert answer.seconds >= 0.2


async def test_a_server_that_asks_for_more_time_than_there_is_has_given_its_answer(
    caller, api, endpoint
) -> None:
    url = api.on("/a", (429, {"msg": "later"}, {"Retry-After": "3600"}), 200)
    answer = await caller.call(endpoint(url, "GET", timeout_seconds=5), ExpressionValues())
    assert (answer.status, answer.attempts) == (429, 1)


@pytest.mark.slow
async def test_the_limit_of_time_is_for_all_attempts_together(caller, api, endpoint) -> None:
    url = api.on("/a", never)
    error = await failure(caller.call(endpoint(url, timeout_seconds=0.5, retries=9), ExpressionValues()))
    assert error.failure == "timeout"
    assert len(api.asked) == 1, "no time is left for another attempt"
    error = await failure(caller.call(endpoint(url, "POST"), ExpressionValues(), seconds=0.5))
    assert error.failure == "timeout"
    told = re.search(r"not answered within (0\.\d+) seconds", error.message)
    assert told is not None
    assert 0 < float(told[1]) <= 0.5  # what is left of them when the request is sent


async def test_the_key_is_the_same_in_every_attempt_and_after_a_crash(callers, api, endpoint) -> None:
    url = api.on("/a", 503, hang_up, 200)
    submit = endpoint(url, "POST", idempotent=True, retries=5)
    for _ in range(2):  # the second time in another process, as it were
        async with callers() as caller:
            answer = await caller.call(submit, ExpressionValues(), run_id="run-1", step_id="提交")
    keys = [asked.headers["idempotency-key"] for asked in api.asked]
    assert keys == ["run-1:%E6%8F%90%E4%BA%A4"] * 4
    assert answer.key == keys[0]


async def test_without_a_run_every_call_has_a_key_of_its_own(caller, api, endpoint) -> None:
    url = api.on("/a", 503, 200)
    for _ in range(2):
        await caller.call(endpoint(url, "POST", idempotent=True), ExpressionValues())
    keys = [asked.headers["idempotency-key"] for asked in api.asked]
    assert keys[0] == keys[1] != keys[2]


async def test_reading_has_no_key_and_a_key_that_the_file_writes_stays(caller, api, endpoint) -> None:
    url = api.on("/a", 200)
    await caller.call(endpoint(url, "GET"), ExpressionValues(), run_id="r", step_id="s")
    own = endpoint(url, "POST", headers={"idempotency-key": "{$inputs.order}"})
    await caller.call(own, ExpressionValues(inputs={"order": "o-7"}), run_id="r", step_id="s")
    assert [asked.headers.get("idempotency-key") for asked in api.asked] == [None, "o-7"]


async def test_a_host_that_fails_again_and_again_is_left_alone_and_tried_later(
    callers, api, endpoint
) -> None:
    time = 0.0
    url = api.on("/a", *[503] * 5, 200)
    async with callers(now=lambda: time) as caller:
        for _ in range(5):
            assert (await caller.call(endpoint(url, "GET", retries=0), ExpressionValues())).status == 503
        error = await failure(caller.call(endpoint(url, "GET"), ExpressionValues()))
        assert error.failure == "unavailable"
        assert "after 5 consecutive failures" in error.message
        assert len(api.asked) == 5
        time = 20.0
        assert (await caller.call(endpoint(url, "GET"), ExpressionValues())).status == 200
        assert (await caller.call(endpoint(url, "GET"), ExpressionValues())).status == 200


async def test_a_host_is_not_left_alone_for_what_one_request_does_wrong(callers, api, endpoint) -> None:
    bad, good = api.on("/bad", 500), api.on("/good", 200)
    async with callers(net={"max_bytes": 1024}) as caller:
        large = api.on("/large", {"text": "x" * 5000})
        for _ in range(8):
            await caller.call(endpoint(bad, "GET", retries=0), ExpressionValues())
            await failure(caller.call(endpoint(large, "GET"), ExpressionValues()))
        assert (await caller.call(endpoint(good, "GET"), ExpressionValues())).status == 200


async def test_one_host_that_is_left_alone_is_not_another(caller, api, endpoint) -> None:
    dead = f"http://127.0.0.1:{unused_port()}/"
    await failure(caller.call(endpoint(dead, "GET", retries=9), ExpressionValues()))
    assert (await failure(caller.call(endpoint(dead, "GET"), ExpressionValues()))).failure == "unavailable"
    assert (await caller.call(endpoint(api.on("/a", 200), "GET"), ExpressionValues())).status == 200


async def test_no_more_requests_are_under_way_than_the_file_allows(callers, api, endpoint) -> None:
    running, most, lock = 0, 0, threading.Lock()
    both, go_on = threading.Event(), threading.Event()

    def slow(asked, connection: socket.socket) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == 2:
                both.set()
        go_on.wait(10)
        with lock:
            running -= 1
        connection.sendall(b"HTTP/1.1 204 No\r\nContent-Length: 0\r\n\r\n")

    url = api.on("/a", slow)
    async with callers(net={"concurrency": 2}) as caller, anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(caller.call, endpoint(url, "GET"), ExpressionValues())
        await anyio.to_thread.run_sync(both.wait, 10)
        error = await failure(caller.call(endpoint(url, "GET"), ExpressionValues(), seconds=0.05))
        assert "too many others were waiting" in error.message
        assert error.failure == "unavailable"
        go_on.set()
    assert (most, len(api.asked)) == (2, 6)


async def test_a_host_is_asked_no_more_often_in_a_minute_than_the_file_allows(callers, api, endpoint) -> None:
    url = api.on("/a", 200)
    async with callers(net={"per_minute": 3}) as caller:
        for _ in range(3):
            await caller.call(endpoint(url, "GET"), ExpressionValues())
        error = await failure(caller.call(endpoint(url, "GET"), ExpressionValues(), seconds=0.05))
    assert "net.per_minute" in error.advice
    assert len(api.asked) == 3


async def test_a_host_that_fails_as_often_as_the_file_says_gets_no_more_requests(
    callers, api, endpoint
) -> None:
    url, now = api.on("/a", 503, {"ok": 1}), [0.0]
    async with callers(net={"breaker_failures": 1, "breaker_pause": 7}, now=lambda: now[0]) as caller:
        assert (await caller.call(endpoint(url, "GET", retries=0), ExpressionValues())).status == 503
        error = await failure(caller.call(endpoint(url, "GET", retries=0), ExpressionValues()))
        assert "retrying in 7 s" in error.message
        now[0] += 7
        assert (await caller.call(endpoint(url, "GET"), ExpressionValues())).body == {"ok": 1}


async def test_places_inside_are_refused_unless_the_file_allows_them(callers, api, endpoint) -> None:
    api.on("/a", 200)
    async with callers() as caller:
        for url in ("http://localhost/a", "http://10.0.0.1/a", "http://169.254.169.254/a", "http://[::1]/a"):
            error = await failure(caller.call(endpoint(url, "GET"), ExpressionValues()))
            assert error.failure == "refused"
            with pytest.raises(NetError):
                caller.check(endpoint(url, "GET"))
        caller.check(endpoint(api.url("/{$inputs.a}"), "GET"))
        redirect = api.on("/r", (302, None, {"Location": "http://169.254.169.254/latest"}))
        error = await failure(caller.call(endpoint(redirect, "GET"), ExpressionValues()))
        assert "metadata service" in error.message
    async with callers(net={"only": ["api.example"]}) as caller:
        error = await failure(caller.call(endpoint(api.url("/a"), "GET"), ExpressionValues()))
        assert "only certain hosts are" in error.message
    assert [asked.target for asked in api.asked] == ["/r"]


async def test_a_redirect_of_a_post_is_the_answer_and_is_not_followed(caller, api, endpoint) -> None:
    url = api.on("/a", (307, None, {"Location": api.url("/b")}))
    assert (await caller.call(endpoint(url, "POST"), ExpressionValues())).status == 307
    assert len(api.asked) == 1


async def test_what_cannot_be_filled_in_is_not_sent(caller, api, endpoint) -> None:
    with pytest.raises(InvalidInputError):
        await caller.call(endpoint(api.url("/a/{$inputs.id}"), "GET"), ExpressionValues())
    headers = {"Authorization": "Bearer env:LOOM_NOT_THERE"}
    with pytest.raises(ConfigError, match="The environment variable LOOM_NOT_THERE is not set"):
        await caller.call(endpoint(api.url("/a"), "GET", headers=headers), ExpressionValues())
    assert api.asked == []


async def test_a_call_that_is_cancelled_ends_at_once_and_the_next_one_works(caller, api, endpoint) -> None:
    url = api.on("/a", never, {"ok": 1})
    with anyio.move_on_after(0.1) as scope:
        await caller.call(endpoint(url, "GET"), ExpressionValues())
    assert scope.cancelled_caught
    assert (await caller.call(endpoint(url, "GET"), ExpressionValues())).body == {"ok": 1}


async def test_who_waits_for_one_host_keeps_no_one_from_another(callers, api, endpoint) -> None:
    url, elsewhere = api.on("/a", 200), f"http://127.0.0.1:{unused_port()}/"
    async with callers(net={"concurrency": 1, "per_minute": 1}) as caller:
        await caller.call(endpoint(url), ExpressionValues())
        async with anyio.create_task_group() as group:
            group.start_soon(caller.call, endpoint(url), ExpressionValues())
            await anyio.wait_all_tasks_blocked()
            error = await failure(caller.call(endpoint(elsewhere, retries=0), ExpressionValues(), seconds=30))
            group.cancel_scope.cancel()
    assert error.failure == "connection"
    assert len(api.asked) == 1


async def test_a_lost_answer_before_a_refusal_is_not_forgotten(caller, api, endpoint) -> None:
    url = api.on("/a", 503, 400)
    answer = await caller.call(endpoint(url, "POST", idempotent=True), ExpressionValues())
    assert (answer.status, answer.maybe_done) == (400, True)
    answer = await caller.call(endpoint(url, "POST", idempotent=True), ExpressionValues())
    assert (answer.status, answer.maybe_done) == (400, False)
