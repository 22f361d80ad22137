"""Authentication and authorization: callers, their tokens, and their scopes."""
