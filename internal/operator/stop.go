package operator

import (
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// lift ends a stop.
func (r *Registry) lift(_ *store.Tx, id string, _ time.Time) error {
	return api.Errorf(api.CodeInvalid, "there is no stop %s", id).WithHint("see: bailiwick stop list")
}
