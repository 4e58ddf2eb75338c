"""`whet improve`: find a better version of a skill, look at its split, and say where a run stands."""
