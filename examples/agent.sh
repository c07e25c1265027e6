#!/bin/sh
# An agent in 20 lines. Regatta starts it in a workspace of its own, with the prompt on standard input.
set -e

# The prompt lists the files that the task may change under "## FILE MANIFEST", one per line.
file=$(sed -n '/^## FILE MANIFEST/,/^$/s/^- //p' | head -n 1)
[ -n "$file" ] || { echo "the task names no file" >&2; exit 1; }

# The work. Call your model here.
mkdir -p "$(dirname "$file")"
echo "Ahoy from $REGATTA_AGENT" > "$file"

# The result. `detail` is what people read.
printf '{"status": "done", "detail": "wrote %s"}' "$file" > "$REGATTA_RESULT"
