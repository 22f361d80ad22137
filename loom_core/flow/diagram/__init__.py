"""Diagrams of flows: the shape of a flow, its layout, the trace of a run through it, and Mermaid."""
