#!/bin/sh
# The prompt is "Greet NAME"; it writes a greeting for that name. Real workers do more.
set -eu
prompt=$(cat inputs/prompt.md)
printf 'Hello, %s!\n' "${prompt#Greet }" >GREETING.md
