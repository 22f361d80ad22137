from pptx.shapes.base import BaseShape
from pptx.table import Table

class GraphicFrame(BaseShape):
    @property
    def has_table(self) -> bool: ...
    @property
    def table(self) -> Table: ...
