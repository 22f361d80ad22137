"""The audit log of tool calls, its file and its report."""
