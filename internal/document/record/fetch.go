package record

import "github.com/bailiwick-dev/bailiwick/api"

// FetchRequest is the line that the service writes to the standard input of
// bailiwick-fetch. When that input ends, the service is gone, and so is the
// reason to fetch.
type FetchRequest struct {
	Source api.Source `json:"source"`           // by URL
	Commit string     `json:"commit,omitempty"` // HEAD, a branch, a tag, or the full name of a commit; empty: HEAD
	Secret string     `json:"secret,omitempty"` // the value of the source's secret
}

// FetchResult is its answer, on standard output.
type FetchResult struct {
	Commit string `json:"commit,omitempty"` // its full name; it is in Dirs.Repository now
	Error  string `json:"error,omitempty"`  // instead: why it is not, without the secret
}

// MaxFetchLine bounds both.
const MaxFetchLine = 1 << 20
