#!/bin/sh
# Brings the dependencies in inputs/list to their newer versions.
set -eu
jq --slurpfile list inputs/list '.dependencies += $list[0].packages' package.json > "$TMPDIR/package.json"
cat "$TMPDIR/package.json" > package.json
