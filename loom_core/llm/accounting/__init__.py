"""Usage accounting of requests: tokens, prices, metrics and spans."""
