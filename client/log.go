package client

import (
	"context"
	"encoding/base64"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// OperatorLog reads the audit log and what proves it to an auditor.
type OperatorLog struct{ c *Conn }

// Log passes audit entries in order to each; see api.LogQuery. With following
// it continues, across restarts of the service, until ctx is done or q.First
// entries were passed.
func (o OperatorLog) Log(ctx context.Context, q api.LogQuery, following bool, each func(api.LogLine) error) error {
	moved, bounded := false, q.First > 0
	read := func() error {
		return lines(ctx, o.c, on(api.CallLog).where(logValues(q, following)), func(l api.LogLine) error {
			q.After, q.Last, moved = &l.Seq, 0, true
			q.First = max(0, q.First-1)
			return each(l)
		})
	}
	if !following {
		return ofConsumer(read())
	}
	return follow(ctx, read, func() (bool, bool) {
		was := moved
		moved = false
		return was, bounded && q.First == 0
	})
}

func logValues(q api.LogQuery, follow bool) url.Values {
	v := url.Values{"follow": {strconv.FormatBool(follow)}}
	for name, n := range map[string]*uint64{"after": q.After, "before": q.Before} {
		if n != nil {
			v.Set(name, strconv.FormatUint(*n, 10))
		}
	}
	for name, n := range map[string]int{"first": q.First, "last": q.Last} {
		if n != 0 { // the service refuses a negative one
			v.Set(name, strconv.Itoa(n))
		}
	}
	for name, s := range map[string]string{
		"run": string(q.Run), "task": string(q.Task), "dispatch": string(q.Dispatch), "role": string(q.Role),
		"tool": q.Tool, "principal": string(q.Principal), "decision": q.Decision,
	} {
		if s != "" {
			v.Set(name, s)
		}
	}
	for name, t := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !t.IsZero() {
			v.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	if len(q.Kinds) > 0 {
		v["kind"] = q.Kinds
	}
	return v
}

// Checkpoint writes to w the newest signed checkpoint of the log, a signed note
// in the format of C2SP tlog-checkpoint. With a wait of at most a minute, it is
// one that covers all entries of now and the attestations of all that has ended.
func (o OperatorLog) Checkpoint(ctx context.Context, wait time.Duration, w io.Writer) error {
	return o.c.copy(ctx, on(api.CallLogCheckpoint).where(url.Values{"wait": {wait.String()}}), w)
}

// Tile writes to w a file of the log by its C2SP tlog-tiles name: checkpoint,
// tile/L/N or tile/entries/N.
func (o OperatorLog) Tile(ctx context.Context, name string, w io.Writer) error {
	return o.c.copy(ctx, on(api.CallLogTile, name), w)
}

// Proof writes to w the inclusion proof of an entry in the format of C2SP
// tlog-proof, with the newest checkpoint. For a new entry it waits until a
// checkpoint covers it.
func (o OperatorLog) Proof(ctx context.Context, entry uint64, w io.Writer) error {
	return o.c.copy(ctx, on(api.CallLogProof).where(url.Values{"entry": {strconv.FormatUint(entry, 10)}}), w)
}

// CheckLog has the service read and verify every entry of its log again.
func (o OperatorLog) CheckLog(ctx context.Context) (api.LogCheck, error) {
	return fetch[api.LogCheck](ctx, o.c, on(api.CallLogCheck))
}

// Evidence writes to w the evidence about a settled run or an ended dispatch,
// for bailiwick-verify. It returns when a checkpoint covers all of it.
func (o OperatorLog) Evidence(ctx context.Context, req api.EvidenceRequest, w io.Writer) error {
	v := url.Values{"blobs": {strconv.FormatBool(req.Blobs)}, "wait": {req.Wait.String()}}
	if req.Run != "" {
		v.Set("run", string(req.Run))
	}
	if req.Dispatch != "" {
		v.Set("dispatch", string(req.Dispatch))
	}
	for _, c := range req.Checkpoints {
		v.Add("checkpoint", base64.RawURLEncoding.EncodeToString(c))
	}
	return o.c.copy(ctx, on(api.CallEvidence).where(v), w)
}
