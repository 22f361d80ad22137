"""One call: its context, progress, elicitation, tasks and long polling."""
