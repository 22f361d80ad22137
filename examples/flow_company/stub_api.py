"""The APIs of a small optician's, as far as flow.json asks them: orders, leave, appointments, what is known.

    pip install starlette uvicorn
    python stub_api.py [--port 8787]

Everything is in memory. `GET /effects` tells what was done, and how often, for tests that count: a request
with an `Idempotency-Key` that was there before is answered again and not done again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable
from datetime import date
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

PORT = 8787
_SUNDAY = 7

_ORDERS = {
    "BO20418": ("grinding", "正在磨片", "2026-12-02"),
    "BO20419": ("ready", "可以来取", "2026-11-20"),
    "BO20500": ("shipped", "已发货", "2026-11-25"),
}
_LEAVE_LEFT = {"E007": 12, "E008": 2}
_TIMES = ["10:00", "14:30", "16:00"]
_STAFF = {
    "验光": "陈医生",
    "配镜": "小林",
    "维修": "老周",
    "eye test": "Dr Chen",
    "fitting": "Lin",
    "repair": "Zhou",
}
_PRICES = {"single": 380, "progressive": 1680, "sun": 560}
_KNOWN = [
    ("营业时间", "周一到周六 9:30 到 19:00，周日休息。", "营业 几点 开门 关门 周日 地址 时间"),
    ("Opening hours", "Monday to Saturday, 9:30 to 19:00.", "open opening hours close sunday"),
    ("质保", "镜架保修一年，镜片膜层保修半年，人为损坏除外。", "保修 质保 坏 退换"),
    ("Warranty", "A year for frames, six months for coatings.", "warranty guarantee broken return"),
    ("请假规定", "年假每年 12 天，提前一天申请；病假三天以上要医院证明。", "请假 年假 病假 规定 流程"),
    ("Leave policy", "12 days a year; over 3 days of sick leave need a note.", "leave policy annual sick"),
    ("验光", "验光免费，约二十分钟；隐形眼镜请提前两小时取下。", "验光 收费 隐形"),
    ("Eye test", "An eye test is free and takes twenty minutes.", "eye test cost free contact lenses"),
]
"""Titles, texts, and the words by which they are found."""


class Company:
    """Records of the business.

    Attributes:
        done: what was done, in order: a name for what, and the body of the request.
    """

    def __init__(self) -> None:
        self.done: list[tuple[str, dict[str, Any]]] = []
        self._failing: dict[str, tuple[int, int]] = {}
        self._answers: dict[str, JSONResponse] = {}
        self._numbers = itertools.count(1)

    def app(self) -> Starlette:
        """It as a web application."""
        return Starlette(
            routes=[
                Route("/orders/{id}", self._order),
                Route("/leave/balance", self._balance),
                Route("/leave/requests", self._leave, methods=["POST"]),
                Route("/notifications", self._notify, methods=["POST"]),
                Route("/appointments/slots", self._slots),
                Route("/appointments/staff", self._staff),
                Route("/appointments", self._book, methods=["POST"]),
                Route("/prices", self._prices),
                Route("/tickets", self._ticket, methods=["POST"]),
                Route("/knowledge", self._knowledge),
                Route("/effects", self._effects),
            ]
        )

    def fail(self, what: str, times: int, *, status: int = 503) -> None:
        """Refuse the next requests for something."""
        self._failing[what] = times, status

    async def _order(self, request: Request) -> JSONResponse:
        id_ = request.path_params["id"].upper()
        if id_ not in _ORDERS:
            return _refused(404, f"没有订单 {id_}，请核对订单号。 / There is no order {id_}.")
        status, status_zh, ready = _ORDERS[id_]
        return JSONResponse({"id": id_, "status": status, "status_zh": status_zh, "ready": ready})

    async def _balance(self, request: Request) -> JSONResponse:
        return JSONResponse({"days": _LEAVE_LEFT.get(request.query_params.get("employee", ""), 0)})

    async def _leave(self, request: Request) -> JSONResponse:
        return await self._do(request, "leave", lambda number, _: {"id": f"LV-{number:04}"})

    async def _notify(self, request: Request) -> JSONResponse:
        return await self._do(request, "notification", lambda _number, _body: {"sent": True})

    async def _slots(self, request: Request) -> JSONResponse:
        if date.fromisoformat(request.query_params["date"]).isoweekday() == _SUNDAY:
            return _refused(409, "周日休息。 / We are closed on Sundays.")
        return JSONResponse({"times": _TIMES, "text": " / ".join(_TIMES)})

    async def _staff(self, request: Request) -> JSONResponse:
        return JSONResponse({"name": _STAFF.get(request.query_params.get("service", ""), "前台")})

    async def _book(self, request: Request) -> JSONResponse:
        return await self._do(request, "appointment", lambda number, _: {"code": f"{number + 7000}"})

    async def _prices(self, request: Request) -> JSONResponse:
        kind = request.query_params.get("kind", "")
        return JSONResponse({kind: _PRICES[kind]} if kind in _PRICES else _PRICES)

    async def _ticket(self, request: Request) -> JSONResponse:
        return await self._do(request, "ticket", lambda number, _: {"ticket": f"T{number:03}"})

    async def _knowledge(self, request: Request) -> JSONResponse:
        asked = request.query_params.get("keywords", "").lower()
        scored = [
            (sum(word in asked for word in words.split()), title, text) for title, text, words in _KNOWN
        ]
        found = sorted((each for each in scored if each[0]), reverse=True)[:3]
        return JSONResponse({"results": [{"title": title, "text": text} for _, title, text in found]})

    async def _effects(self, _request: Request) -> JSONResponse:
        return JSONResponse([{"what": what, "body": body} for what, body in self.done])

    async def _do(
        self, request: Request, what: str, answered: Callable[[int, dict[str, Any]], dict[str, Any]]
    ) -> JSONResponse:
        body = json.loads(await request.body() or b"{}")
        times, status = self._failing.get(what, (0, 0))
        if times:
            self._failing[what] = times - 1, status
            return _refused(status, "正在维护，请稍后再试。 / Please try again later.")
        key = request.headers.get("idempotency-key", "")
        if key in self._answers:
            return self._answers[key]
        self.done.append((what, body))
        answer = JSONResponse(answered(next(self._numbers), body), 201)
        if key:
            self._answers[key] = answer
        return answer


def _refused(status: int, message: str) -> JSONResponse:
    return JSONResponse({"msg": message}, status)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=PORT, help=f"default {PORT}; 0 for any that is free")
    port = parser.parse_args().port
    server = uvicorn.Server(uvicorn.Config(Company().app(), port=port, log_level="warning"))
    listener = server.config.bind_socket()
    print(f"The company answers on http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
