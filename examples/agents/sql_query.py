"""SQL from a question: the database checks the query, and the model gets its objections and tries again.

    uv run examples/agents/sql_query.py 每个城市有多少订单？

`generate` asks for a value of a Pydantic model. What its validators reject goes back to the model. (For an
agent with tools, the hook `AnswerValidator` does this.)
LOOM_EXAMPLE_MODEL=deepseek asks that model; otherwise a script answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from contextlib import closing

from pydantic import BaseModel, field_validator

from loom_core.errors import LoomError
from loom_core.llm import create_provider, generate
from loom_core.testing import MockLLM

SCHEMA = "CREATE TABLE orders (id INTEGER PRIMARY KEY, city TEXT, total REAL)"
ORDERS = [("杭州", 39.9), ("杭州", 12.0), ("成都", 99.0)]


def open_shop() -> sqlite3.Connection:
    """Open a small database that can only be read."""
    shop = sqlite3.connect(":memory:")
    shop.execute(SCHEMA)
    shop.executemany("INSERT INTO orders (city, total) VALUES (?, ?)", ORDERS)
    shop.commit()
    shop.execute("PRAGMA query_only = ON")
    return shop


class Query(BaseModel):
    """A query that answers the question."""

    sql: str

    @field_validator("sql")
    @classmethod
    def check(cls, sql: str) -> str:
        """Let the database plan the query, without running it."""
        if not sql.lstrip().upper().startswith("SELECT"):
            raise ValueError("Only SELECT is allowed.")
        with closing(open_shop()) as shop:
            try:
                shop.execute(f"EXPLAIN {sql}")
            except sqlite3.Error as error:
                raise ValueError(f"SQLite says: {error}") from error
        return sql


async def main(question: str) -> None:
    name = os.environ.get("LOOM_EXAMPLE_MODEL")
    messages = [
        {"role": "system", "content": f"Write a query for SQLite. The schema:\n{SCHEMA}"},
        {"role": "user", "content": question},
    ]
    async with create_provider(name) if name else script() as model:
        answer = await generate(model, messages, schema=Query, repairs=2)
    for response in answer.responses:
        print(f"model: {response.content}")
    with closing(open_shop()) as shop:
        for row in shop.execute(answer.value.sql):
            print(*row)


def script() -> MockLLM:
    """Stand in for a model, which first takes a column that there is not."""
    sql = "SELECT {0}, COUNT(*) FROM orders GROUP BY {0} ORDER BY 2 DESC"
    return MockLLM([json.dumps({"sql": sql.format(column)}) for column in ("town", "city")])


if __name__ == "__main__":
    try:
        asyncio.run(main(" ".join(sys.argv[1:]) or "每个城市有多少订单？"))
    except LoomError as error:
        sys.exit(str(error))
