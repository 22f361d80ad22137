"""Text analysis: tokens, languages, scripts, identifiers, names. Knows nothing of knowledge bases."""
