"""What tests of several parts share. Nothing but tests imports it."""
