#!/bin/sh
# A hook on the event task.completed. Replace the echo with a message to your team.
echo "$REGATTA_EVENT: $REGATTA_SUBJECT of $REGATTA_PROJECT"
