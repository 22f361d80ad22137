"""Text analysis: tokens, languages, scripts, identifiers, names. Independent of knowledge bases."""
