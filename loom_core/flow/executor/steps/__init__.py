"""Execute the steps of a flow."""
