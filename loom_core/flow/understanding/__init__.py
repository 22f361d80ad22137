"""Understanding of messages: slots, numbers, units, negation, small talk and corrections."""
