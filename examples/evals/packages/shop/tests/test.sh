#!/bin/sh
# The reward is the share of what was asked for: a heading, and the changes in order.
score=0
grep -q '^# 2.0$' NOTES.md && score=$((score + 1))
printf -- '- bigger buttons\n- faster search\n- no more crashes\n' > "$LOGS_DIR/expected"
grep '^- ' NOTES.md | diff - "$LOGS_DIR/expected" && score=$((score + 1))
echo "$score" | awk '{ print $1 / 2 }' > "$LOGS_DIR/reward.txt"
