"""Commands at a terminal."""
