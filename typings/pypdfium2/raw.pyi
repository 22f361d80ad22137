from pypdfium2 import PdfTextPage

FPDF_ERR_PASSWORD: int

class FS_MATRIX:
    a: float
    b: float
    c: float
    d: float

def FPDFText_GetCharIndexFromTextIndex(text_page: PdfTextPage, nTextIndex: int) -> int: ...
def FPDFText_GetFontSize(text_page: PdfTextPage, index: int) -> float: ...
def FPDFText_GetMatrix(text_page: PdfTextPage, index: int, matrix: FS_MATRIX) -> int: ...
