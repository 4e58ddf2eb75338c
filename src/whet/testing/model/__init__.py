"""The parts of the scripted model: what a script says, and one file for each way to say it on the wire."""
