package launch

import (
	"encoding/json"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// handOver returns a pipe for the values of secrets, which a worker reads once, before anything
// else. It can hold all of them, and nothing is in it until it is filled.
func handOver(values record.Secrets) (*account.Pipe, error) {
	if values == nil {
		values = record.Secrets{}
	}
	doc, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	if len(doc) > record.MaxSecrets {
		return nil, fmt.Errorf("the values of the secrets have %d bytes together, the limit is %d", len(doc), record.MaxSecrets)
	}
	return account.NewPipe(doc)
}
