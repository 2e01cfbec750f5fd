package client

import (
	"context"
	"io"
	"net/url"
	"strconv"
	"strings"
)

const logPrefix = "/v1/operator/log/"

// Checkpoint writes to w the newest signed checkpoint of the log, a signed note
// as C2SP tlog-checkpoint has it.
func (o Operator) Checkpoint(ctx context.Context, w io.Writer) error {
	return Runtime(o).copy(ctx, logPrefix+"checkpoint", w)
}

// Tile writes to w a file of the log by its name in C2SP tlog-tiles: checkpoint,
// tile/L/N or tile/entries/N.
func (o Operator) Tile(ctx context.Context, name string, w io.Writer) error {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return Runtime(o).copy(ctx, logPrefix+"tiles/"+strings.Join(parts, "/"), w)
}

// Proof writes to w the proof that an entry is in the log, as C2SP tlog-proof
// has it, with the newest checkpoint. Of an entry that is new it waits until a
// checkpoint covers it.
func (o Operator) Proof(ctx context.Context, entry uint64, w io.Writer) error {
	return Runtime(o).copy(ctx, logPrefix+"proof?entry="+strconv.FormatUint(entry, 10), w)
}
