#!/bin/sh
# The gate: an edited chapter says that it is revised. The patch is in inputs/change.
set -eu
mkdir -p outputs
if grep -q '^+Revised\.$' inputs/change; then
  echo '{"verdict": "green"}'
else
  echo '{"verdict": "red", "reason": "an edited chapter ends with: Revised."}'
fi > outputs/result.json
