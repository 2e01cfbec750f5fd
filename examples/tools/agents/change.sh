#!/bin/bash
# Changes the schema, as soon as a person has approved it.
bailiwick-tool report 'The import needs orders.note to go.'
until bailiwick-tool call warehouse/transform_apply_schema_change '{"drop": "orders.note"}'; do
  [ $? -eq 4 ] || exit 1 # 4: waiting for a human
done
bailiwick-tool call warehouse/query '{"table": "orders"}'
