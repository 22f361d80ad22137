from typing import IO

from pptx.presentation import Presentation as _Presentation

def Presentation(pptx: str | IO[bytes] | None = None) -> _Presentation: ...
