# Runs in the fresh workspace, before the agent; WHET_* variables say for whom.
echo "$GREETING for $WHET_CASE_ID" > BOOTSTRAPPED
