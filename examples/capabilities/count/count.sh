#!/bin/sh
# Counts the words of a file. outputs/result.json is the structured result, and
# the list of words a file beside it.
set -eu
read -r file < inputs/prompt.md || [ -n "$file" ]
mkdir -p outputs
tr -cs 'A-Za-z' '\n' < "$file" | sort -u > outputs/words.txt
printf '{"file": "%s", "words": %d}' "$file" "$(wc -w < "$file")" > outputs/result.json
