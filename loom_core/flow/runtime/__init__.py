"""The runtime of a flow server: its components, and hot reload."""
