"""Anthropic Messages API: client, request body and response reader, for Claude and compatible servers."""
