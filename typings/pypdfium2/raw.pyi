from pypdfium2 import PdfTextPage

FPDF_ERR_PASSWORD: int

def FPDFText_GetCharIndexFromTextIndex(text_page: PdfTextPage, nTextIndex: int) -> int: ...
