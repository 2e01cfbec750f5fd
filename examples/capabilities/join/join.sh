#!/bin/sh
# Applies the patches of other tasks, which lie in inputs/ under the names that
# the plan gives them. What comes of it is this task's own patch.
set -eu
for patch in inputs/patch-*; do
  echo "applying $patch"
  git apply --allow-empty "$patch"
done
