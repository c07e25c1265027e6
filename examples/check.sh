#!/bin/sh
# Stands for a project's tests. Fails if a file is left with the marks of a conflict.
! grep -rn '^<<<<<<<' --include='*.txt' --include='*.md' .
