"""Ask a model or an agent for verdicts, and let a model play the user of a conversation."""
