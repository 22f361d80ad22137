"""Remote embedding models."""
