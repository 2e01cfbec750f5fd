#!/bin/sh
# Applies the patches of other tasks, which are in inputs/ under the names that the
# plan gives them. The result is the patch of this task.
set -eu
for patch in inputs/patch-* inputs/patches/*; do
  [ -e "$patch" ] || continue
  echo "applying $patch"
  git apply --allow-empty "$patch"
done
