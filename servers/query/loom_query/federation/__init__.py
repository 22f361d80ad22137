"""Live sources, their hot reload, and answers from several of them."""
