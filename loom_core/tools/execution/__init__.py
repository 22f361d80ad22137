"""Run tool calls: the pipeline of six stages, its last three stages of one call, and the scheduler."""
