"""What keeps run events: the run folder."""
