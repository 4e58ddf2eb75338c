"""`whet judge`: whether the model that judges is good enough to decide."""
