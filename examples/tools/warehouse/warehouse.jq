# An MCP server of two tools on standard input and output.
# Run: jq -nc --unbuffered -f warehouse.jq
def tool($name; $does; $in): {name: $name, description: $does, inputSchema: {type: "object", required: [$in], properties: {($in): {type: "string"}}, additionalProperties: false}};
def tools: [tool("query"; "Show the columns of a table."; "table"), tool("transform_apply_schema_change"; "Drop a column, given as TABLE.COLUMN."; "drop")];
def text: {content: [{type: "text", text: .}]};
def answer($m):
  if $m.method == "initialize" then {protocolVersion: "2025-11-25", capabilities: {tools: {}}, serverInfo: {name: "warehouse", version: "1"}}
  elif $m.method == "tools/list" then {tools: tools}
  elif $m.method == "ping" then {}
  elif $m.params.name == "query" then ($m.params.arguments.table as $t | .[$t] // [] | "\($t): \(join(", "))" | text)
  elif $m.params.name == "transform_apply_schema_change" then ("dropped \($m.params.arguments.drop)" | text)
  else null end;
foreach inputs as $m ({orders: ["id", "total", "note"]};
  if $m.method == "tools/call" and $m.params.name == "transform_apply_schema_change"
  then ($m.params.arguments.drop / ".") as [$t, $c] | .[$t] -= [$c] else . end;
  select($m.id != null) | answer($m) as $r | {jsonrpc: "2.0", id: $m.id} + if $r then {result: $r} else {error: {code: -32601, message: "unknown"}} end)
