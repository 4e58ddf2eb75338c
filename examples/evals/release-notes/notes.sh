#!/bin/sh
# notes.sh VERSION FILE: the changes in FILE, one per line, as release notes.
printf '# %s\n\n' "$1"
sort "$2" | sed 's/^/- /'
