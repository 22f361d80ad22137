"""Weather: two tools that build on each other, and both kinds of retries.

    uv run examples/agents/weather.py "What is the weather like in Hangzhou?"

`locate` asks the model for another name if it does not know one (`ToolRetry`). The first connection of
`forecast` fails; Loom repeats the call, and the model does not notice. The journal has all of it.
LOOM_EXAMPLE_MODEL=deepseek asks that model; otherwise a script answers.
"""

from __future__ import annotations

import asyncio
import os
import sys

from loom_core.agent import Agent
from loom_core.errors import LoomError
from loom_core.testing import MockLLM, call
from loom_core.tools import Tool, ToolRetry, tool

PLACES = {"hangzhou": (30.3, 120.2), "berlin": (52.5, 13.4)}


@tool(read_only=True, open_world=False)
async def locate(city: str) -> dict[str, float]:
    """Return the coordinates of a city."""
    if city.casefold() not in PLACES:
        raise ToolRetry(f"{city!r} is unknown.", advice=f"Give one of {', '.join(PLACES)}.")
    latitude, longitude = PLACES[city.casefold()]
    return {"latitude": latitude, "longitude": longitude}


def forecast_tool() -> Tool:
    """Return a forecast service that is down at the first attempt."""
    attempts = 0

    @tool(read_only=True, open_world=False)
    async def forecast(latitude: float, longitude: float) -> str:
        """Return the weather of today at a place."""
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ConnectionError("The service does not answer.")
        return "24 °C, light rain" if (latitude, longitude) == PLACES["hangzhou"] else "11 °C, dry"

    return forecast


async def main(question: str) -> None:
    model = os.environ.get("LOOM_EXAMPLE_MODEL") or script()
    async with Agent(model, tools=[locate, forecast_tool()]) as agent:
        result = (await agent.run(question)).or_raise()
        for event in await agent.journal.events(result.run_id):
            it = event.payload
            if event.type == "tool_retry":
                print(f"{it['tool']}: attempt {it['attempt']} of {it['attempts']}")
            elif event.type == "tool_result":
                print(f"{it['tool']}: {it['text']}")
        print(result)


def script() -> MockLLM:
    """Stand in for a model, which begins with a name that the tool does not know."""
    return MockLLM(
        [
            call("locate", city="Hangchow"),
            call("locate", city="Hangzhou"),
            call("forecast", latitude=30.3, longitude=120.2),
            "In Hangzhou it is 24 °C, with light rain: take an umbrella.",
        ]
    )


if __name__ == "__main__":
    try:
        asyncio.run(main(" ".join(sys.argv[1:]) or "What is the weather like in Hangzhou?"))
    except LoomError as error:
        sys.exit(str(error))
