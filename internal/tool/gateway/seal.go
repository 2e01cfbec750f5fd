package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// row is a row of the table.
type row struct {
	line                   api.ToolCallLine
	arguments, answer      *string
	argumentsBlob, ansBlob *string
}

const selectCalls = "SELECT line, state, error, millis, arguments, arguments_blob, answer, answer_blob FROM gateway_call WHERE dispatch = ? AND attempt = ? AND number > ? ORDER BY number LIMIT 100"

// page returns up to 100 calls behind a number.
func page(r store.Reader, id api.DispatchID, attempt int, after int64) (list []row, err error) {
	err = r.Each(selectCalls, store.Args{id, attempt, after}, func(scan store.Scan) error {
		var c row
		var line, state, failure string
		var millis int64
		if err := scan(&line, &state, &failure, &millis, &c.arguments, &c.argumentsBlob, &c.answer, &c.ansBlob); err != nil {
			return err
		}
		err := json.Unmarshal([]byte(line), &c.line)
		c.line.State, c.line.Error, c.line.Millis = state, failure, millis
		list = append(list, c)
		return err
	})
	return list, err
}

// load adds the content of a call to its line.
func (g *Gateway) load(ctx context.Context, c *row) (err error) {
	if c.line.Arguments, err = g.content(ctx, c.arguments, c.argumentsBlob); err == nil {
		c.line.Answer, err = g.content(ctx, c.answer, c.ansBlob)
	}
	return err
}

func (g *Gateway) content(ctx context.Context, text, digest *string) (json.RawMessage, error) {
	switch {
	case text != nil:
		return json.RawMessage(*text), nil
	case digest != nil:
		return g.cfg.Blobs.Get(ctx, api.Digest(*digest), api.MaxToolAnswer+1<<20)
	}
	return nil, nil
}

// Calls calls each with the calls of an attempt, in their order, while their content is in
// the table or in the record of the attempt. It yields nothing once retention removed it.
func (g *Gateway) Calls(ctx context.Context, id api.DispatchID, attempt int, sealed *api.Artifact, each func(*api.ToolCallLine) error) error {
	if sealed != nil {
		return g.sealedCalls(ctx, *sealed, each)
	}
	for after := int64(0); ; {
		var list []row
		if err := g.cfg.Store.Read(ctx, func(r *store.View) (err error) {
			list, err = page(r, id, attempt, after)
			return err
		}); err != nil || len(list) == 0 {
			return err
		}
		for i := range list {
			after = list[i].line.Number
			err := g.load(ctx, &list[i])
			if err == nil {
				err = each(&list[i].line)
			}
			if err != nil {
				return err
			}
		}
	}
}

func (g *Gateway) sealedCalls(ctx context.Context, sealed api.Artifact, each func(*api.ToolCallLine) error) (err error) {
	r, err := g.cfg.Blobs.Open(ctx, sealed.Digest)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(text) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		var line api.ToolCallLine
		if err := json.Unmarshal(text, &line); err != nil {
			return fmt.Errorf("the record of the calls: %w", err)
		}
		if err := each(&line); err != nil {
			return err
		}
	}
}

// Seal records as unknown the calls of an attempt that are out, and stores all its calls
// as one blob of api.ToolCallLine lines; it returns nil without calls. Sealing twice yields the same. ctx protects
// the blob until what refers to it is durable; Drop belongs to that transaction. No view
// of the attempt may be open.
func (g *Gateway) Seal(ctx context.Context, id api.DispatchID, attempt int) (*api.Artifact, error) {
	if err := g.abandon(ctx, id, attempt); err != nil {
		return nil, err
	}
	var n int64
	err := g.cfg.Store.Read(ctx, func(r *store.View) error {
		return r.Get("SELECT count(*) FROM gateway_call WHERE dispatch = ? AND attempt = ?", store.Args{id, attempt}, &n)
	})
	if err != nil || n == 0 {
		return nil, err
	}
	out, in := io.Pipe()
	go func() {
		enc := json.NewEncoder(in)
		enc.SetEscapeHTML(false)
		in.CloseWithError(g.Calls(ctx, id, attempt, nil, func(line *api.ToolCallLine) error { return enc.Encode(line) }))
	}()
	digest, size, err := g.cfg.Blobs.PutStream(ctx, out)
	_ = out.CloseWithError(context.Canceled) // of no use to a writer that has finished
	if err != nil {
		return nil, err
	}
	return &api.Artifact{Digest: digest, Size: size}, nil
}

// Drop removes the calls of an attempt, in the transaction that refers to what Seal
// returned.
func Drop(tx *store.Tx, id api.DispatchID, attempt int) error {
	_, err := tx.Exec("DELETE FROM gateway_call WHERE dispatch = ? AND attempt = ?", id, attempt)
	return err
}

// Blobs returns the blobs that calls refer to before they are sealed, by dispatch. A
// garbage collection keeps them.
func Blobs(r store.Reader) (map[api.DispatchID][]api.Digest, error) {
	list := map[api.DispatchID][]api.Digest{}
	err := r.Each("SELECT dispatch, arguments_blob, answer_blob FROM gateway_call WHERE arguments_blob IS NOT NULL OR answer_blob IS NOT NULL", nil, func(scan store.Scan) error {
		var id api.DispatchID
		var in, out *string
		if err := scan(&id, &in, &out); err != nil {
			return err
		}
		for _, d := range []*string{in, out} {
			if d != nil {
				list[id] = append(list[id], api.Digest(*d))
			}
		}
		return nil
	})
	return list, err
}
