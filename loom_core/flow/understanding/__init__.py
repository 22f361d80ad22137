"""Understand a message: slots, numbers, units, negation, small talk and corrections."""
