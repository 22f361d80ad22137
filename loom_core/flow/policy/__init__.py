"""Choice of the next action: routing, the action space, decisions and disambiguation."""
