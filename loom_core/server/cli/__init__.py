"""The command-line scaffold that all servers share."""
