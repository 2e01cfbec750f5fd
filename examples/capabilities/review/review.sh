#!/bin/sh
# Reviews the patch in inputs/change by the rule of the prompt.
set -eu
read -r rule < inputs/prompt.md || [ -n "$rule" ]
verdict=approve
case $rule in
short) [ "$(grep -c '^[+-][^+-]' inputs/change)" -le 20 ] || verdict=reject ;;
complete) ! grep -q '^+.*TODO' inputs/change || verdict=reject ;;
revised) grep -q '^+Revised\.$' inputs/change || verdict=reject ;;
esac
mkdir -p outputs
printf '{"verdict": "%s"}' "$verdict" > outputs/result.json
