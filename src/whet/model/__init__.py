"""The model: the nouns of whet, what they are called, and their one JSON form."""
