#!/bin/sh
# Fails if the text still has a forbidden word.
set -eu
read -r word < inputs/prompt.md || [ -n "$word" ]
if grep -n "$word" ./*.txt; then
  echo "there is still a $word"
  exit 1
fi
