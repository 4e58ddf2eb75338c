"""The nouns of whet: frozen data and pure functions, which every other package shares."""
