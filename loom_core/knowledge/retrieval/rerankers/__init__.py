"""Rerankers: reorder the best passages of a retriever.

`loom_core.plugins.create("reranker", name, ...)` makes one: `features` (no model, milliseconds),
`cross_encoder` (a model from a local folder), `api` (a rerank endpoint) or `llm` (a language model).
"""
