"""All vendors in one app: as strict as they are, and as wrong as a script says."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, cast

from starlette.applications import Starlette
from starlette.routing import Route

from loom_core.testing.streaming_transport import StreamingASGITransport
from loom_core.testing.vendors.anthropic_answers import AnthropicAnswer
from loom_core.testing.vendors.anthropic_rules import ANTHROPIC_HOSTS, check_anthropic, thinking_of
from loom_core.testing.vendors.chat_answers import ChatAnswer
from loom_core.testing.vendors.chat_rules import check_chat
from loom_core.testing.vendors.chat_thinking import thinks
from loom_core.testing.vendors.chat_vendors import CHAT_VENDORS, ChatVendor
from loom_core.testing.vendors.default_turns import asked_by_anthropic, asked_by_chat, default_turn
from loom_core.testing.vendors.delivery import Delivery, as_json
from loom_core.testing.vendors.embeddings import ollama_embeddings, openai_embeddings
from loom_core.testing.vendors.json_fields import Json
from loom_core.testing.vendors.memory import Memory
from loom_core.testing.vendors.refusal import Refused, error_body, error_of_turn
from loom_core.testing.vendors.script import Recorded, Script, Turn

if TYPE_CHECKING:
    import httpx2
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

__all__ = ["FakeVendors"]

_HOSTS = {
    **{host: vendor.name for vendor in CHAT_VENDORS.values() for host in vendor.hosts},
    **dict.fromkeys(ANTHROPIC_HOSTS, "anthropic"),
}
_MESSAGES = frozenset({"anthropic", "anthropic_compatible"})
_NO_CHAT = ChatVendor(name="anthropic", path="", models=())


class FakeVendors:
    """Every vendor's server, as an ASGI app: `POST` of chat-completions, Anthropic's Messages, embeddings.

    `anthropic_compatible` is a server that imitates Anthropic as it was in 2023: it takes its key as
    `x-api-key` only, and no later version of the format.

    A vendor is found at `base_url(vendor)`, below a path of its own on any host, or under its real host name,
    so that real base URLs work. What the vendor would refuse is refused, with its status, body and code.

        fake = FakeVendors([Turn(text="你好"), Turn(status=429, headers={"retry-after": "1"})])
        async with fake.http_client() as http:
            client = AsyncOpenAI(base_url=fake.base_url("deepseek"), api_key=fake.key, http_client=http)

    Attributes:
        key: the key that vendors take; any other is refused.
        requests: every request so far, refused ones too.
        disconnects: how many clients left before their answer's end.
    """

    def __init__(self, script: Script | None = None, *, key: str = "sk-fake-key-of-no-value") -> None:
        """Take the script; without one, answers follow from the requests (see `default_turn`).

        A request that comes when a list is used up is refused: 400, of code `script_used_up`.
        """
        self.key = key
        self.requests: list[Recorded] = []
        self.disconnects = 0
        self._script = script
        self._used = 0
        self._memories = defaultdict[str, Memory](Memory)  # by vendor: none knows what another said
        self._app = Starlette(routes=[Route("/{path:path}", self._answer, methods=["POST"])])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI has it."""
        await self._app(scope, receive, send)

    @property
    def turns_left(self) -> int:
        """How many answers of the script were not asked for; 0 without a list."""
        return 0 if self._script is None or callable(self._script) else len(self._script) - self._used

    def base_url(self, vendor: str) -> str:
        """Where an SDK finds a vendor, at the host `fake`."""
        path = "" if vendor in _MESSAGES else CHAT_VENDORS[vendor].path
        return f"http://fake/{vendor}{path}"

    def http_client(self) -> httpx2.AsyncClient:
        """A client that reaches this app without a network, and sees streams as they are sent."""
        import httpx2

        return httpx2.AsyncClient(transport=StreamingASGITransport(self))

    async def _answer(self, request: Request) -> Delivery:
        vendor, path = _address(request)
        raw = await request.body()
        try:
            parsed: object = json.loads(raw)
        except ValueError:
            parsed = None
        body: Json = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
        headers = {
            name: value
            for name, value in request.headers.items()
            if name not in {"authorization", "x-api-key", "api-key"}
        }
        self.requests.append(recorded := Recorded(vendor, path, headers, body))
        try:
            self._check_key(vendor, request)
            if not isinstance(parsed, dict):
                raise Refused("We could not parse the JSON body of your request.")
            pieces, turn = self._pieces(recorded)
        except Refused as refused:
            turn = Turn(status=refused.status)
            known = "anthropic" if vendor in _MESSAGES else vendor if vendor in CHAT_VENDORS else "openai"
            pieces = [as_json(error_body(known, refused))]
        return Delivery(
            pieces,
            turn,
            stream=bool(body.get("stream")) and turn.status == 200,
            keep_alive=CHAT_VENDORS.get(vendor, _NO_CHAT).keep_alive,
            headers={"x-request-id": f"req-{len(self.requests)}", **turn.headers},
            on_disconnect=self._count_disconnect,
        )

    def _count_disconnect(self) -> None:
        self.disconnects += 1

    def _check_key(self, vendor: str, request: Request) -> None:
        if vendor not in {*CHAT_VENDORS, *_MESSAGES}:
            raise Refused(f"Invalid URL (POST {request.url.path})", status=404)
        if vendor == "anthropic_compatible":
            if request.headers.get("x-api-key") != self.key or "authorization" in request.headers:
                raise Refused("invalid x-api-key", status=401)
            return
        if vendor != "anthropic" and not CHAT_VENDORS.get(vendor, _NO_CHAT).needs_key:
            return
        given = request.headers.get("authorization", "")
        if vendor == "anthropic" and "x-api-key" in request.headers:
            given = f"Bearer {request.headers['x-api-key']}"
        if not given.startswith("Bearer "):
            raise Refused("You didn't provide an API key. Give it as: Authorization: Bearer KEY.", status=401)
        if given != f"Bearer {self.key}":
            raise Refused("Incorrect API key provided.", status=401)

    def _pieces(self, request: Recorded) -> tuple[list[bytes], Turn]:
        """The body of the answer, in pieces, and the turn it is made of."""
        if request.vendor in _MESSAGES:
            return self._anthropic(request)
        vendor = CHAT_VENDORS[request.vendor]
        if request.path == f"{vendor.path}/chat/completions":
            return self._chat(vendor, request)
        if vendor.embeddings and request.path == f"{vendor.path}/embeddings":
            return self._vectors(vendor, request)
        if vendor.name == "ollama" and request.path == "/api/embed":
            return self._vectors(vendor, request)
        raise Refused(f"Invalid URL (POST {request.path})", status=404)

    def _chat(self, vendor: ChatVendor, request: Recorded) -> tuple[list[bytes], Turn]:
        body, memory = request.body, self._memories[vendor.name]
        check_chat(vendor, body, memory)
        shown = vendor.reasoning_field != "" and thinks(vendor.name, body)
        turn = self._turn(request) or default_turn(asked_by_chat(body, thinks=shown))
        if (sent := _instead(vendor.name, turn)) is not None:
            return sent, turn
        answer = ChatAnswer(vendor, body, turn, memory)
        return (answer.frames() if body.get("stream") else [as_json(answer.whole())]), turn

    def _anthropic(self, request: Recorded) -> tuple[list[bytes], Turn]:
        body, memory = request.body, self._memories[request.vendor]
        version = request.headers.get("anthropic-version")
        if request.vendor == "anthropic_compatible" and version != "2023-06-01":
            raise Refused(f"anthropic-version: {version!r} is not a valid version")
        counting = request.path == "/v1/messages/count_tokens"
        if request.path != "/v1/messages" and not counting:
            raise Refused("Not Found", status=404)
        check_anthropic(request.headers, body, memory, counting=counting)
        if counting:
            return [as_json({"input_tokens": len(json.dumps(body)) // 4 + 1})], Turn()
        shown = thinking_of(body)["type"] in {"adaptive", "enabled"}
        turn = self._turn(request) or default_turn(asked_by_anthropic(body, thinks=shown))
        if (sent := _instead("anthropic", turn)) is not None:
            return sent, turn
        answer = AnthropicAnswer(body, turn, memory)
        return (answer.frames() if body.get("stream") else [as_json(answer.whole())]), turn

    def _vectors(self, vendor: ChatVendor, request: Recorded) -> tuple[list[bytes], Turn]:
        answers = ollama_embeddings if request.path == "/api/embed" else openai_embeddings
        answers(vendor, request.body, Turn())  # a request that is refused takes no turn
        turn = self._turn(request) or Turn()
        if (sent := _instead(vendor.name, turn)) is not None:
            return sent, turn
        return [as_json(answers(vendor, request.body, turn))], turn

    def _turn(self, request: Recorded) -> Turn | None:
        if self._script is None:
            return None
        if callable(self._script):
            return self._script(request)
        if self._used >= len(self._script):
            raise Refused(
                f"The script has {len(self._script)} turns, and one more is asked for.", code="script_used_up"
            )
        self._used += 1
        return self._script[self._used - 1]


def _address(request: Request) -> tuple[str, str]:
    """The vendor, and the path on its server."""
    path = request.url.path.replace("//", "/")
    if (vendor := _HOSTS.get(request.headers.get("host", ""))) is not None:
        return vendor, path
    vendor, _, rest = path.removeprefix("/").partition("/")
    return vendor, f"/{rest}"


def _instead(vendor: str, turn: Turn) -> list[bytes] | None:
    """What a turn sends instead of an answer, or None."""
    if turn.body is not None:
        return [turn.body]
    if turn.status != 200:
        refused = error_of_turn(turn.status, code=turn.code, message=turn.message)
        return [as_json(error_body(vendor, refused))]
    return None
