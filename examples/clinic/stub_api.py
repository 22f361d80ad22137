"""The API of a small clinic, as far as flow.json asks it: times, bookings, reports, prescriptions, prices.

    pip install starlette uvicorn
    python stub_api.py [--port 8788]

Everything is in memory. On Sundays the clinic is closed; 10:00 is taken on every day, and so is a time that
was booked here. A refusal has a reason for people in `msg`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from datetime import date
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

PORT = 8788
_SUNDAY = 7
_TIMES = ["09:00", "10:00", "11:00", "14:00", "15:00", "16:00", "16:30"]
_TAKEN = "10:00"
_DEPARTMENTS = {
    "INT": "内科 / Internal medicine",
    "PED": "儿科 / Pediatrics",
    "DEN": "牙科 / Dental",
    "DER": "皮肤科 / Dermatology",
    "EYE": "眼科 / Eye",
    "GYN": "妇科 / Gynecology",
    "ENT": "耳鼻喉科 / ENT",
    "TCM": "中医科 / Chinese medicine",
    "ORT": "骨科 / Orthopedics",
}
_REPORTS = {"R20417": True, "R20418": False, "R20419": True}


class Clinic:
    """Records of the clinic.

    Attributes:
        bookings: by code: department, date, time and patient.
    """

    def __init__(self) -> None:
        self.bookings: dict[str, dict[str, Any]] = {
            "K1024": {"department": "DEN", "date": "2030-01-07", "time": "15:00", "patient": "王小明"},
            "K1031": {"department": "EYE", "date": "2030-01-08", "time": "09:00", "patient": "Ann Lee"},
        }
        self._codes = itertools.count(2001)
        self._answers: dict[str, JSONResponse] = {}

    def app(self) -> Starlette:
        """It as a web application."""
        return Starlette(
            routes=[
                Route("/slots", self._slots),
                Route("/bookings", self._book, methods=["POST"]),
                Route("/bookings/{code}", self._booking, methods=["GET", "PUT", "DELETE"]),
                Route("/reports/{number}", self._report),
                Route("/prescriptions", self._prescribe, methods=["POST"]),
                Route("/prices", self._prices),
            ]
        )

    async def _slots(self, request: Request) -> JSONResponse:
        department, day = request.query_params["department"], request.query_params["date"]
        if date.fromisoformat(day).isoweekday() == _SUNDAY:
            return _refused(
                409, "周日休息，请换一天。 / We are closed on Sundays; please choose another day."
            )
        free = [each for each in _TIMES if not self._is_taken(department, day, each)]
        if not free:
            return _refused(409, "这一天约满了，请换一天。 / That day is full; please choose another one.")
        return JSONResponse({"times": free, "text": ", ".join(free)})

    async def _book(self, request: Request) -> JSONResponse:
        key = request.headers.get("idempotency-key", "")
        if key in self._answers:
            return self._answers[key]
        asked = await _body(request)
        if self._is_taken(asked["department"], asked["date"], asked["time"]):
            return _refused(409, f"{asked['time']} 已经有人约了。 / {asked['time']} is already taken.")
        code = f"K{next(self._codes)}"
        self.bookings[code] = asked
        answer = JSONResponse({"booking": code}, 201)
        if key:
            self._answers[key] = answer
        return answer

    async def _booking(self, request: Request) -> JSONResponse:
        code = request.path_params["code"].upper()
        booking = self.bookings.get(code)
        if booking is None:
            return _refused(
                404, f"没有预约 {code}，请核对预约号。 / There is no booking {code}; please check it."
            )
        if request.method == "DELETE":
            del self.bookings[code]
        if request.method == "PUT":
            asked = await _body(request)
            if self._is_taken(booking["department"], asked["date"], asked["time"], but=code):
                return _refused(409, f"{asked['time']} 已经有人约了。 / {asked['time']} is already taken.")
            booking |= asked
        when = f"{booking['date']} {booking['time']}"
        zh, en = (f"{name}, {when}" for name in _DEPARTMENTS[booking["department"]].split(" / "))
        return JSONResponse({**booking, "text": {"zh": zh, "en": en}})

    async def _report(self, request: Request) -> JSONResponse:
        number = request.path_params["number"].upper()
        if number not in _REPORTS:
            return _refused(
                404, f"没有报告 {number}，请核对报告号。 / There is no report {number}; please check it."
            )
        if _REPORTS[number]:
            return JSONResponse({"zh": "已经出来了，可以到前台取。", "en": "It is ready at the front desk."})
        return JSONResponse(
            {"zh": "还没有出来，请明天再问。", "en": "It is not ready yet; please ask tomorrow."}
        )

    async def _prescribe(self, request: Request) -> JSONResponse:
        await _body(request)
        return JSONResponse({"number": f"P{next(self._codes)}"}, 201)

    async def _prices(self, _request: Request) -> JSONResponse:
        return JSONResponse({"consultation": 20, "child": 25, "cleaning": 180, "eye_test": 60})

    def _is_taken(self, department: str, day: str, time: str, *, but: str = "") -> bool:
        wanted = (department, day, time)
        return time == _TAKEN or any(
            (each["department"], each["date"], each["time"]) == wanted
            for code, each in self.bookings.items()
            if code != but
        )


async def _body(request: Request) -> dict[str, Any]:
    return json.loads(await request.body() or b"{}")


def _refused(status: int, message: str) -> JSONResponse:
    return JSONResponse({"msg": message}, status)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=PORT, help=f"default {PORT}; 0 for any that is free")
    port = parser.parse_args().port
    server = uvicorn.Server(uvicorn.Config(Clinic().app(), port=port, log_level="warning"))
    listener = server.config.bind_socket()
    print(f"The clinic answers on http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
