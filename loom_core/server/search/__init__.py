"""Tools that search and read: citations, excerpts and the profile `chatgpt`."""
