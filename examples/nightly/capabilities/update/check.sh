#!/bin/sh
# Judges the patch: package.json is whole, and every dependency has one exact version.
set -eu
jq -e '.name and (.dependencies | length > 0 and all(test("^[0-9]+(\\.[0-9]+)*$")))' package.json > /dev/null
