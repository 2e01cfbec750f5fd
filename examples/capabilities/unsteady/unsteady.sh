#!/bin/bash
# Fails about every other time, like a service that is not always reachable.
set -eu
if ((RANDOM % 2)); then
  echo "not this time"
  exit 1
fi
echo "The end." >> three.txt
