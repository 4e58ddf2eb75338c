"""The agents: who is under test, and what it did."""
