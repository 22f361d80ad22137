"""Pages for a browser: one file each, that asks nothing of any network."""
