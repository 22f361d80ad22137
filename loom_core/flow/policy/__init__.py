"""Choose the next action: routing, the action space, decisions and disambiguation."""
