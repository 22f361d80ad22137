"""Language models: what they are to the rest of Loom, and a scripted one for tests and demonstrations."""
