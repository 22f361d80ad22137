"""A vendor that Loom does not know, described in a file, with another one behind it where it fails.

    ACME_API_KEY=… uv run examples/custom_vendor.py examples/custom_vendor.json "What is a knowledge graph?"

The file says what is special about the vendor: which field its reasoning comes in and goes back in, how much
thinking is asked for, which ways of asking for JSON and tools it takes. `docs/reference/providers.md` lists
all attributes. Keys stand in the environment or the keyring, never in the file.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from loom_core.errors import LoomError
from loom_core.llm import create_provider


async def main() -> None:
    config = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".json")
    question = " ".join(sys.argv[2:]) or "什么是知识图谱？"
    model = create_provider(json.loads(config.read_text(encoding="utf-8")))
    try:
        response = await model.chat([{"role": "user", "content": question}], effort="low")
    finally:
        await model.aclose()
    print(response.content)
    print(f"{response.message.provider}/{response.model}: {response.usage}", file=sys.stderr)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except LoomError as error:
        sys.exit(str(error))
