package broker

import (
	"fmt"
)

// maxCounted bounds what the count of an answer keeps in memory: an event of a stream,
// or an answer that is no stream, in bytes.
const maxCounted = 16 << 20

var errTooLarge = fmt.Errorf("the answer has an event of more than %d MiB, which cannot be counted", maxCounted>>20)
