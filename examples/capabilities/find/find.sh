#!/bin/sh
# Finds the chapters that have a word. The list in the result decides which tasks grow.
set -eu
read -r word < inputs/prompt.md || [ -n "$word" ]
mkdir -p outputs
files=$(grep -lw -- "$word" ./*.txt | sed 's|^\./\(.*\)$|"\1"|' | paste -sd, -)
printf '{"files": [%s]}' "$files" > outputs/result.json
