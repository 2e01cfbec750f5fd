#!/bin/bash
# Fails about every other time, as what depends on others does.
set -eu
if ((RANDOM % 2)); then
  echo "not this time"
  exit 1
fi
echo "The end." >> three.txt
