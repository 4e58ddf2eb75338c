"""The doctor: what of this machine a run could use, and what stands in its way."""
