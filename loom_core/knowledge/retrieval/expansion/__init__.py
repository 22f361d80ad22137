"""From the passages found to those they lead to: links, entities, graph walk."""
