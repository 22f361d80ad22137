"""User memory: notes about each user that outlive sessions, in a knowledge base of the user's own."""
