package launch

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// handOver returns a pipe that holds the values of secrets, for a worker to read
// once. It holds all of them before the worker starts, so a launcher that is killed
// leaves no worker without them.
func handOver(values record.Secrets) (*os.File, error) {
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
	defer clear(doc)
	return account.FilledPipe(doc)
}
