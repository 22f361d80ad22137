"""Context compaction: summaries, cut points and context usage."""
