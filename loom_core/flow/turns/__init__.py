"""One turn of a conversation, from intake to delivery."""
