"""Requests of the chat-completions format as JSON, and one way to send them: for tests of fakes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion

    from loom_core.testing.vendors.app import FakeVendors

__all__ = [
    "CITY",
    "HTTPS",
    "MODELS",
    "PNG",
    "QUESTION",
    "SYSTEM",
    "Case",
    "answer",
    "ask",
    "body",
    "calls",
    "check_case",
    "image",
    "said",
    "signed",
    "tool",
]

Body = dict[str, Any]

MODELS = {
    "openai": "gpt-5.5",
    "deepseek": "deepseek-flash",
    "qwen": "qwen3.8-flash",
    "gemini": "gemini-3.8-flash",
    "kimi": "kimi-k3",
    "doubao": "doubao-seed-2-1-pro-260915",
    "zhipu": "glm-5.3",
    "minimax": "MiniMax-M3",
    "ollama": "qwen3:8b",
    "vllm": "Qwen/Qwen3.5-9B",
    "gpustack": "qwen3.5-9b",
    "openai_compatible": "some-model",
    "custom": "another-model",
}
QUESTION: Body = {"role": "user", "content": "杭州今天天气怎么样？"}
SYSTEM: Body = {"role": "system", "content": "Answer briefly."}
PNG = "data:image/png;base64,iVBORw0KGgo="
HTTPS = "https://example.com/cat.png"


def tool(parameters: Body | None = None, *, name: str = "weather", **more: object) -> Body:
    """A tool."""
    parameters = parameters or {"type": "object", "properties": {"city": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


def calls(*ids: str, arguments: str = '{"city": "杭州"}', name: str = "weather", **more: object) -> Body:
    """An answer that calls a tool, once for each id."""
    made = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}} for id_ in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": made, **more}


def answer(id_: str, text: str = "晴，21°C") -> Body:
    """What a tool answered."""
    return {"role": "tool", "tool_call_id": id_, "content": text}


def said(text: str, **more: object) -> Body:
    """An answer of the model."""
    return {"role": "assistant", "content": text, **more}


def image(url: str) -> Body:
    """A message of the user with an image."""
    return {
        "role": "user",
        "content": [{"type": "text", "text": "看"}, {"type": "image_url", "image_url": {"url": url}}],
    }


def signed(call: Body, *signatures: str) -> Body:
    """The same calls with signatures of Gemini, the first ones first."""
    pairs = zip(call["tool_calls"], signatures, strict=False)
    marked = [{**one, "extra_content": {"google": {"thought_signature": sign}}} for one, sign in pairs]
    return {**call, "tool_calls": marked + call["tool_calls"][len(signatures) :]}


CITY: Body = {"type": "object", "properties": {"city": {"type": "string"}}}


def body(*messages: Body, **fields: object) -> Body:
    """A change to a request: other messages, and more fields."""
    return {"messages": list(messages), **fields}


async def ask(fake: FakeVendors, vendor: str, change: Body) -> ChatCompletion:
    """The answer to a plain question with a change, by OpenAI's SDK.

    Raises:
        openai.APIError: it is refused, or there is none.
    """
    import openai

    fields: Body = {"model": MODELS[vendor], "messages": [QUESTION], **change}
    async with fake.http_client() as http_client:
        client = openai.AsyncOpenAI(
            base_url=fake.base_url(vendor), api_key=fake.key, http_client=http_client, max_retries=0
        )
        model, messages = fields.pop("model"), fields.pop("messages")
        return await client.chat.completions.create(model=model, messages=messages, extra_body=fields)


@dataclass(frozen=True, slots=True)
class Case:
    """A rule of a vendor.

    Attributes:
        vendor: whose it is.
        name: what it is about.
        broken: a change to a plain question that breaks it.
        fine: the nearest change that does not.
        says: a part of the refusal's body.
        status: of the refusal.
        code: the vendor's code; None for any.
    """

    vendor: str
    name: str
    broken: Body
    fine: Body = field(default_factory=dict[str, Any])
    says: str = ""
    status: int = 400
    code: str | None = None


async def check_case(case: Case) -> None:
    """Check that a request that breaks a rule is refused, and the nearest one is not.

    Raises:
        AssertionError: it is not so.
    """
    import openai

    from loom_core.testing.vendors.app import FakeVendors

    refusal: openai.APIStatusError | None = None
    try:
        await ask(FakeVendors(), case.vendor, case.broken)
    except openai.APIStatusError as error:
        refusal = error
    assert refusal is not None, "the request was taken"
    assert refusal.status_code == case.status
    assert case.says in refusal.response.text
    assert case.code in {None, refusal.code}
    message = (await ask(FakeVendors(), case.vendor, case.fine)).choices[0].message
    assert message.content or message.tool_calls
