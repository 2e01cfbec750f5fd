package deploy

import "github.com/bailiwick-dev/bailiwick/internal/strictyaml"

// Problem is one thing that is wrong in a manifest or in a file that it
// names.
type Problem = strictyaml.Problem

// Problems is everything that is wrong with a manifest, in the order of its
// lines. Its API code is CodeInvalid.
type Problems = strictyaml.Problems
