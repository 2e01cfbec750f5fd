#!/bin/sh
# Lists the dependencies that have another version in the index, which is $1.
set -eu
mkdir -p outputs
jq --slurpfile latest "$1" '
  [.dependencies | to_entries[] | {key, value: $latest[0][.key], now: .value} | select(.value and .value != .now)]
  | {outdated: (length > 0), packages: from_entries}' package.json > outputs/result.json
cat outputs/result.json
