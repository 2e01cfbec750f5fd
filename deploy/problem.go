package deploy

import "github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"

// Problem is one problem in a manifest or in a file that it names.
type Problem = strictyaml.Problem

// Problems lists the problems of a manifest by line. Its API code is CodeInvalid.
type Problems = strictyaml.Problems
