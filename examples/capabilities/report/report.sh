#!/bin/sh
# Adds up what other tasks counted, and joins the lists that they left.
set -eu
mkdir -p outputs
total=0
for result in inputs/count-*; do
  n=$(sed -n 's/.*"words" *: *\([0-9]*\).*/\1/p' "$result")
  total=$((total + n))
done
{
  echo "# Words: $total"
  sort -u inputs/words-*
} > outputs/report.md
cat outputs/report.md
