"""Structured output through the SDKs, from servers as strict as the vendors' own."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from loom_core.llm.factory import PROVIDERS
from loom_core.llm.interface import Effort
from loom_core.llm.structured import generate
from loom_core.net.retry import RetryPolicy
from tests.fixtures.vendors.app import FakeVendors
from tests.fixtures.vendors.chat_vendors import CHAT_VENDORS
from tests.fixtures.vendors.script import Turn


class Entity(BaseModel):
    name: str = Field(description="名称", max_length=80)
    kind: Literal["person", "place"] = "place"
    parts: list[Entity] = []
    born: int | None = None


class Entities(BaseModel):
    """Entities that a text names."""

    entities: list[Entity]
    counts: dict[str, int] = {}


class Answer(BaseModel):
    answer: str
    sure: bool | None = None


_QUESTION = [{"role": "system", "content": "Find entities."}, {"role": "user", "content": "李白生于碎叶。"}]


def _provider(vendor: str, fake: FakeVendors, http_client: Any) -> Any:
    return PROVIDERS[vendor](
        PROVIDERS[vendor].vendor.model or CHAT_VENDORS[vendor].models[0].replace("*", "3"),
        api_key=fake.key,
        base_url=fake.base_url(vendor),
        retry=RetryPolicy(attempts=1),
        http_client=http_client,
    )


@pytest.mark.parametrize("effort", [None, "off", "high"])
@pytest.mark.parametrize(
    "value",
    [Answer(answer="碎叶"), Entities(entities=[Entity(name="李白", kind="person")], counts={"人": 1})],
)
@pytest.mark.parametrize("vendor", sorted(PROVIDERS.keys() - {"custom"}))
async def test_every_vendor_takes_the_schema_and_its_answer_is_read(
    vendor: str, value: BaseModel, effort: Effort | None
):
    fake = FakeVendors([Turn(text=value.model_dump_json())])
    async with fake.http_client() as http_client:
        provider = _provider(vendor, fake, http_client)
        done = await generate(provider, _QUESTION, schema=type(value), effort=effort, max_tokens=20_000)
        await provider.aclose()
    assert done.value == value


@pytest.mark.parametrize("vendor", sorted(PROVIDERS.keys() - {"custom"}))
async def test_every_vendor_takes_the_round_in_which_an_answer_is_mended(vendor: str):
    fake = FakeVendors([Turn(text='{"answr": 1}'), Turn(text='{"answer": "李白", "sure": null}')])
    async with fake.http_client() as http_client:
        provider = _provider(vendor, fake, http_client)
        done = await generate(provider, _QUESTION, schema=Answer, max_tokens=20_000)
        await provider.aclose()
    assert done.value == Answer(answer="李白")
    assert (len(done.responses), fake.turns_left) == (2, 0)
