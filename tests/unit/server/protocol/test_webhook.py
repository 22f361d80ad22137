"""Webhooks: what is posted, and what goes wrong with it."""

from __future__ import annotations

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from loom_core.server.protocol.webhook import Webhook


async def post(body: str, error: Exception | None = None) -> httpx2.Response:
    async def take(parameters, posted):
        if error is not None:
            raise error
        return {"posted": posted, **parameters}

    app = Starlette(routes=[Route("/hook", Webhook("/hook", take).serve, methods=["POST"])])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://loom") as web:
        return await web.post("/hook?key=7", content=body)


@pytest.mark.parametrize(
    ("body", "error", "status", "answer"),
    [
        ('{"a": 1}', None, 200, {"posted": {"a": 1}, "key": "7"}),
        ("", None, 200, {"posted": None, "key": "7"}),
        *(
            (body, None, 400, {"error": "The body is not JSON.", "advice": "Post JSON, or nothing."})
            for body in ("{", '{"a": NaN}', '{"\\ud800": 1}', "[" * 1000 + "]" * 1000)
        ),
        (
            "[[]]",
            RecursionError(),
            400,
            {"error": "The body is nested too deeply.", "advice": "Post flatter JSON."},
        ),
    ],
)
async def test_a_body_that_cannot_be_taken_is_refused(body, error, status, answer):
    response = await post(body, error)
    assert (response.status_code, response.json()) == (status, answer)


async def test_an_error_of_the_program_is_not_taken_for_a_body_that_is_no_json():
    with pytest.raises(ValueError, match="a fault"):
        await post("{}", ValueError("a fault"))
