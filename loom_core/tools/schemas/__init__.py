"""JSON Schemas of tools: schemas for models, checks of servers' schemas, and validation of values."""
