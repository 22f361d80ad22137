"""The engines behind the derived indexes: tantivy, Chroma, Kùzu, and Loom's own."""
