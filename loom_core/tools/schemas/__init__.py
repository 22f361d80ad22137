"""JSON Schemas: those models see, those servers send, and checks of values."""
