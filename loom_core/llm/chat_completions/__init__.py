"""Models that are asked in the format of OpenAI's chat completions, which most vendors speak."""
