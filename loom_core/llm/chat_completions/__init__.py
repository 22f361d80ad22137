"""OpenAI's chat completions API, which most vendors support: client, request body and response reader."""
