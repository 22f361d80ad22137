"""Answers generated from passages, and the patterns around them."""
