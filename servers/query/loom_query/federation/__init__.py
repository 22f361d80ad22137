"""Sources as they are asked now, and answers from several of them."""
