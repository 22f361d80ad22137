"""What requests take: tokens, prices, metrics and spans."""
