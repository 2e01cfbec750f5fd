#!/bin/sh
# Replaces a word in one file. The prompt has the file, the old word and the new.
set -eu
{ read -r file; read -r old; read -r new; } < inputs/prompt.md
echo "replacing $old by $new in $file"
sed -i "s/\b$old\b/$new/g" "$file"
