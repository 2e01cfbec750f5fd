#!/bin/sh
# Writes the contents, asks for a title, and resumes with the answer.
set -eu
if [ ! -f inputs/resume.json ]; then
  echo "Contents: one, two, three" > title.txt
  cat > .bailiwick/question.json <<'QUESTION'
{"question": "Which title shall the book have?", "options": ["The Wall", "The Grey Cat"]}
QUESTION
  exit 0
fi
sed -n 's/.*"answer":"\([^"]*\)".*/\1/p' inputs/resume.json >> title.txt
