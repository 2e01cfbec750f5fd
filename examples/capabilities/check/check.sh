#!/bin/sh
# Fails where a word is left that must not be there.
set -eu
read -r word < inputs/prompt.md || [ -n "$word" ]
if grep -n "$word" ./*.txt; then
  echo "there is still a $word"
  exit 1
fi
