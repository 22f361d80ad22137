"""Authentication: who sends a request, by which token, and what they may do."""
