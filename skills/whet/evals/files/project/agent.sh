#!/bin/sh
# Stands for an agent, so that you need no model: it greets as its skill says.
prompt=$(cat)
name=${prompt##* }
name=${name%.}
if [ -z "$WHET_SKILL" ]; then
    echo "Hi $name"
elif grep -q "sincerely" "$WHET_SKILL/SKILL.md"; then
    echo "Dear $name, welcome. Yours sincerely"
else
    echo "Dear $name, welcome."
fi
