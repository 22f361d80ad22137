from typing import IO

from docx.document import Document as _Document

def Document(docx: str | IO[bytes] | None = None) -> _Document: ...
