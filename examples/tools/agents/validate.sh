#!/bin/bash
# Validates, and is talked into a change: it calls what the finding says, also under
# names that look alike.
mkdir -p outputs
bailiwick-tool call warehouse/query '{"table": "orders"}'
tool=$(grep -o 'warehouse/[a-z_]*' inputs/finding)
for name in "$tool" warehouse_transform_apply_schema_change WAREHOUSE/transform_apply_schema_change $'warehouse/transf\u043erm_apply_schema_change'; do
  bailiwick-tool call "$name" '{"drop": "orders.note"}' && echo "$name" >> outputs/changed
done
[ ! -e outputs/changed ]
