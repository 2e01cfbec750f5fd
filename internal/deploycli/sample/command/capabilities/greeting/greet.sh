#!/bin/sh
# Reads {"name": "..."} and writes a greeting. Real workers do more.
set -eu
name=$(sed -n 's/.*"name" *: *"\([^"\\]*\)".*/\1/p' inputs/input.json)
printf 'Hello, %s!\n' "${name:-world}" >GREETING.md
