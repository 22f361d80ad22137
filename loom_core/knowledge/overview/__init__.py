"""Overview of a knowledge base: its topics, their key terms, and sentences that represent them."""
