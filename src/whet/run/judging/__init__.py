"""Ask the judge of a recorded run again, about answers as they are and as they are not."""
