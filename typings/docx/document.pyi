from docx.opc.coreprops import CoreProperties
from docx.opc.part import Part
from docx.oxml.xmlchemy import BaseOxmlElement

class _CT_Document(BaseOxmlElement):
    body: BaseOxmlElement

class _Styles:
    element: BaseOxmlElement

class Document:
    element: _CT_Document
    @property
    def styles(self) -> _Styles: ...
    @property
    def part(self) -> Part: ...
    @property
    def core_properties(self) -> CoreProperties: ...
