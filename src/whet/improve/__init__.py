"""`whet improve`: make versions of a skill, race them on practice cases, and accept one only if it holds on others."""
