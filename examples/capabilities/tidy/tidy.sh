#!/bin/sh
# Fixes what the gate has found: inputs/change is the patch, inputs/verdict the finding.
set -eu
[ -e inputs/change ] || exit 0 # nothing was found
cat inputs/verdict
git apply inputs/change
sed -n 's|^+++ b/||p' inputs/change | while read -r file; do echo 'Revised.' >> "$file"; done
