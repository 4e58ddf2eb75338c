"""How commands are named, grouped and typed: the words that all commands share."""
