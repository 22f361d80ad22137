"""Run tool calls: planning, scheduling and the pipeline."""
