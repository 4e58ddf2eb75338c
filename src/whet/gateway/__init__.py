"""The gateway between agents and their models: it puts keys in, counts what passes, and lets nothing else through."""
