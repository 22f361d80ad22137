"""The content of messages: what goes in as data, and what comes out besides a model's thinking."""

from __future__ import annotations

import re

__all__ = ["as_data", "without_thinking"]

_THINKING = "think|thinking|thought|reasoning"
_BLOCK = re.compile(rf"\s*<({_THINKING})>.*?</\1>", re.IGNORECASE | re.DOTALL)
_OPEN = re.compile(rf"\s*<(?:{_THINKING})>", re.IGNORECASE)
_CLOSE = re.compile(rf"</(?:{_THINKING})>", re.IGNORECASE)


def as_data(tag: str, text: str) -> str:
    """A text that others wrote, between tags that it cannot close.

    Tags of the same name inside it lose their bracket, and what UTF-8 cannot hold is replaced. Say in
    the instructions that what stands between the tags is data.
    """
    inside = re.sub(rf"<(?=\s*/?\s*{re.escape(tag)})", "‹", text, flags=re.IGNORECASE)
    return f"<{tag}>\n{inside.encode('utf-8', 'replace').decode()}\n</{tag}>"


def without_thinking(content: str) -> str:
    """An answer without the thinking that some models put before it, stripped; empty if it is all thinking.

    Known forms: `<think>…</think>`, also several; without the opening tag, which some servers put into
    the prompt; and without the closing tag, where the limit of tokens came first. The names `thinking`,
    `thought` and `reasoning` are known too.
    """
    start = 0
    while (block := _BLOCK.match(content, start)) is not None:
        start = block.end()
    if _OPEN.match(content, start):
        return ""
    for close in _CLOSE.finditer(content, start):
        start = close.end()
    return content[start:].strip()
