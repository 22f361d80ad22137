"""Import and export of flows as Arazzo documents."""
