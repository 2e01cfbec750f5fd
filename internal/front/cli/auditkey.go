package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// logKey is a key of the log, as audit key prints it.
type logKey struct {
	Key  string  `json:"key"` // C2SP signed-note verifier key: name, hash and key
	ID   string  `json:"id"`
	From uint64  `json:"from"` // the first entry that it signs
	UpTo *uint64 `json:"upTo,omitempty"`
}

func (t *auditVerbs) keyCommand(v *console.Verb) {
	var file string
	var all bool
	v.Do(func(ctx context.Context, _ []string) error {
		trust, err := t.trustOf(ctx, file)
		if err != nil {
			return err
		}
		keys, err := logKeys(trust)
		if err != nil {
			return err
		}
		if earlier := len(keys) - 1; !all && earlier > 0 {
			keys = keys[earlier:]
			fmt.Fprintf(t.Stderr, "note: checkpoints from before entry #%d verify with %s only; see: bailiwick audit key --all\n",
				keys[0].From, record.Plural(earlier, "earlier key"))
		}
		if t.Format != "text" && t.Format != "name" {
			return t.JSON(keys)
		}
		for _, k := range keys {
			fmt.Fprintln(t.Stdout, k.Key)
		}
		return nil
	})
	v.Flag(&file, "trust")
	v.Flag(&all, "all")
}

// trustOf returns the trust file of that name, or that of the service.
func (t *auditVerbs) trustOf(ctx context.Context, file string) ([]byte, error) {
	if file == "" {
		var b bytes.Buffer
		err := t.withOperator(func(o client.Operator) error { return o.Trust(ctx, &b) })
		return b.Bytes(), err
	}
	b, err := readSmall(file)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "--trust: %w", err)
	}
	return b, nil
}

// logKeys returns the keys of the log in a trust file, oldest first.
func logKeys(trust []byte) (keys []logKey, err error) {
	var doc struct {
		Log struct {
			Origin string
			Keys   []struct {
				ID     string
				Public []byte
				From   uint64
				UpTo   *uint64
			}
		}
	}
	if err := json.Unmarshal(trust, &doc); err != nil || len(doc.Log.Keys) == 0 {
		return nil, api.Errorf(api.CodeInvalid, "not a trust file: it names no key of a log").WithHint(`want a file from "bailiwick audit trust"`)
	}
	for _, k := range doc.Log.Keys {
		vkey, err := logproof.VerifierKey(doc.Log.Origin, k.Public)
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "trust file: %w", err)
		}
		keys = append(keys, logKey{Key: vkey, ID: k.ID, From: k.From, UpTo: k.UpTo})
	}
	return keys, nil
}
