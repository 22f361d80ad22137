"""What a client may name a file by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["readable_paths"]

_SHOWN = 200  # characters of a path that is none


def readable_paths(paths: Sequence[str], roots: Sequence[Path]) -> list[Path]:
    """The real paths behind what a client asks to be read, whether they exist or not. Blocks.

    Args:
        paths: absolute, or relative to the first root that has them.
        roots: folders that may be read; links and `..` are followed before a path is held against them.

    Raises:
        InvalidInputError: one of them is outside the roots, or cannot be a path.
    """
    real_roots = [root.resolve() for root in roots]
    found: list[Path] = []
    for path in paths:
        real = _real(path, real_roots)
        if not any(real.is_relative_to(root) for root in real_roots):
            raise InvalidInputError(
                f"{path} is outside the folders that this server may read.",
                advice=f"It may read: {', '.join(map(str, real_roots))}. Its --root option changes that.",
            )
        found.append(real)
    return found


def _real(path: str, roots: Sequence[Path]) -> Path:
    try:
        given = Path(path).expanduser()
        candidates = [given] if given.is_absolute() else [root / given for root in roots]
        return next((c.resolve() for c in candidates if c.exists()), candidates[0].resolve())
    except (OSError, ValueError, RuntimeError):  # too long; with a NUL; a loop of links, `~nobody`
        raise InvalidInputError(f"{path[:_SHOWN]!r} cannot be a path.", advice="Check the path.") from None
