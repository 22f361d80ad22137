"""Models over the network: provider, connection, limits, circuit breaker, and a class for each vendor."""
