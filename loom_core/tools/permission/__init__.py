"""Permissions of tools: rules, argument patterns and web addresses."""
