"""Protocol between the processes that share a knowledge base and its owner, the worker process."""
