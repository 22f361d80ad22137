"""Commands of loom-query-server at a terminal."""
