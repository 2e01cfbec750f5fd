package deploy

import "github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"

// parser adds to strictyaml.Parser the values that artifacts of several kinds have:
// paths, hosts, headers, variables, principals and uses of secrets. It does not know
// the manifest around them.
type parser struct{ strictyaml.Parser }
