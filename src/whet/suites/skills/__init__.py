"""What a skill must keep to: the rules of agentskills.io for its manifest and its files, and no text of its cases."""
