"""JSON Schemas for models: as each vendor takes them, and what values have to do with them."""
