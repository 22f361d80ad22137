"""Self-contained HTML page: inline styles, scripts and data, with a content security policy."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path

from loom_core.errors import InvalidInputError, LoomError

__all__ = ["asset", "embed_json", "page", "write_page"]

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_IN_SCRIPT = str.maketrans(
    {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"}
)
_HERE = "loom_core.server.pages"


def asset(package: str, name: str) -> str:
    """Read a file of a package, such as a style sheet."""
    return resources.files(package).joinpath(name).read_text("utf-8")


def page(
    *,
    title: str,
    body: str,
    css: Sequence[str] = (),
    scripts: Sequence[str] = (),
    data: Mapping[str, object],
    policy: Sequence[str] = (),
) -> str:
    """Render a self-contained page of HTML.

    `base.css` and `base.js` precede the page's own: colours and type for light and dark, switches of
    theme and language, and `Page`, through which scripts read `data` and build elements.

    Args:
        title: plain text.
        body: trusted HTML; user content belongs in `data`.
        css: texts of style sheets.
        scripts: texts of scripts, in order; each may use what those before it declare.
        data: JSON that scripts find as `Page.data`.
        policy: additional directives of the content security policy, such as `worker-src blob:`. By default
            the page may only use its own scripts, styles and inline images.

    Raises:
        LoomError: `data` is not JSON, or a style or script would end its own element.
    """
    styles = [_inside("style", text) for text in (asset(_HERE, "base.css"), *css)]
    programs = [_inside("script", text) for text in (asset(_HERE, "base.js"), *scripts)]
    rules = [
        "default-src 'none'",
        f"style-src {' '.join(map(_hash, styles))}",
        f"script-src {' '.join(map(_hash, programs))}",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
        *policy,
    ]
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape("; ".join(rules))}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<meta name="referrer" content="no-referrer">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>",
            *(f"<style>{text}</style>" for text in styles),
            "</head>",
            "<body>",
            body.strip(),
            f'<script type="application/json" id="data">{embed_json(data)}</script>',
            *(f"<script>{text}</script>" for text in programs),
            "</body>",
            "</html>",
            "",
        )
    )


def write_page(path: Path, text: str) -> int:
    """Write a page to a file, replacing an existing one; return its size in bytes. Blocks.

    Raises:
        InvalidInputError: the file cannot be written.
    """
    data = text.encode()
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InvalidInputError(
            f"{path} cannot be written: {error.strerror or error}.",
            advice="Give --html a file in a folder that exists and that you may write to.",
        ) from error
    return len(data)


def embed_json(data: Mapping[str, object]) -> str:
    """Serialize JSON for a script element: no text in it ends the element or begins a comment.

    Raises:
        LoomError: it is no JSON.
    """
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise LoomError(
            f"The data of a page is not JSON-serializable: {error}.",
            advice="Give it text, finite numbers, lists and objects.",
        ) from None
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text.translate(_IN_SCRIPT))


def _inside(element: str, text: str) -> str:
    text = f"\n{text.strip()}\n"  # exactly as in the element: the hash covers every character
    if re.search(rf"</{element}|<!--", text, re.IGNORECASE):
        raise LoomError(
            f"A {element} of a page would end its own element.",
            advice=f"Write it without `</{element}` and without `<!--`.",
        )
    return text


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
