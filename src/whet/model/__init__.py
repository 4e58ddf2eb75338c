"""The nouns of whet: frozen data, no I/O, standard library only."""
