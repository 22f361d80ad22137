"""mkdocs hooks: links that leave docs/, and diagrams without JavaScript.

mkdocs.yml names this file as its hook. The pages link to files of the repository by their relative paths; on
the site each of these files lies under `repository/`: Markdown as a page, others as they are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html import escape
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parents[1]
_DOCS = _ROOT / "docs"
_OUTSIDE = "repository"
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^)\s#]+)((?:#[^)\s]*)?)(?=\))")
_DRAWN = '%%{init: {"theme": "neutral", "flowchart": {"wrappingWidth": 480}}}%%\n'  # on light and dark ground


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what the pages link to outside docs/, and what that links to in turn."""
    from mkdocs.structure.files import File, InclusionLevel

    waiting = [Path(file.abs_src_path) for file in files.documentation_pages() if file.abs_src_path]
    while waiting:
        for target in _targets(waiting.pop()):
            if target.is_file() and files.get_file_from_path(_on_site(target)) is None:
                file = File.generated(
                    config, _on_site(target), abs_src_path=str(target), inclusion=InclusionLevel.NOT_IN_NAV
                )
                files.append(file)
                waiting += [target] if target.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to where their files lie on the site."""
    source = page.file.abs_src_path
    if source is None:
        return markdown
    here = PurePosixPath(page.file.src_uri).parent

    def move(link: re.Match[str]) -> str:
        target = Path(source).parent.joinpath(link[1]).resolve()
        return os.path.relpath(_on_site(target), here) + link[2]

    return _LINK.sub(move, markdown)


def diagram(source: str, *_fence: object, **_settings: object) -> str:
    """Draw a block of Mermaid as SVG, where the machine has the renderer; else show its text."""
    if find_spec("merman") is None:
        return f"<pre><code>{escape(source)}</code></pre>"
    from merman import Merman

    return f'<div class="diagram">{Merman().render_svg(_DRAWN + source, None)}</div>'


def _targets(page: Path) -> Iterator[Path]:
    """Yield a page's links to places outside docs/."""
    for link in _LINK.finditer(page.read_text(encoding="utf-8")):
        target = page.parent.joinpath(link[1]).resolve()
        if not target.is_relative_to(_DOCS):
            yield target


def _on_site(target: Path) -> str:
    if target.is_relative_to(_DOCS):
        return target.relative_to(_DOCS).as_posix()
    return f"{_OUTSIDE}/{target.relative_to(_ROOT).as_posix()}"
