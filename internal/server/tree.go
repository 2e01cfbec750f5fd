package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// Tree is the tree over the log, as far as it is read.
type Tree interface {
	Latest() (signed []byte, c note.Checkpoint)
	Wait(ctx context.Context, size uint64) error
	InclusionProof(ctx context.Context, index, size uint64) ([]note.Hash, error)
	Files() fs.FS
	Check(ctx context.Context) (uint64, error)
}

// coverTime is how long a proof of an entry waits for a checkpoint that covers
// it.
const coverTime = 5 * time.Second

// checkpoint sends the newest signed checkpoint, as it was signed.
func (s *Server) checkpoint(w http.ResponseWriter, _ *http.Request, _ caller) error {
	signed, _ := s.cfg.Tree.Latest()
	if signed == nil {
		return api.Errorf(api.CodeNotFinished, "no checkpoint was signed yet").WithHint("ask again in a second")
	}
	return send(w, io.NopCloser(bytes.NewReader(signed)), int64(len(signed)))
}

// tile sends a file of the log: checkpoint, tile/L/N or tile/entries/N, as C2SP
// tlog-tiles names them.
func (s *Server) tile(w http.ResponseWriter, r *http.Request, _ caller) error {
	name := r.PathValue("path")
	f, err := s.cfg.Tree.Files().Open(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return api.Errorf(api.CodeNotFound, "the log has no file %.200q", name)
	}
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return send(w, f, st.Size())
}

// proof sends the proof that an entry is in the log, as C2SP tlog-proof has it,
// with the newest checkpoint.
func (s *Server) proof(w http.ResponseWriter, r *http.Request, _ caller) error {
	if !r.URL.Query().Has("entry") {
		return malformed(api.CodeInvalid, "entry: want the number of an entry")
	}
	n, err := number(r, "entry", 0, 0, 1<<53)
	if err != nil {
		return err
	}
	entry := uint64(n) //nolint:gosec // G115: number checks the range
	durable, err := s.cfg.Ledger.Len(r.Context())
	if err != nil {
		return err
	}
	if entry >= durable {
		return api.Errorf(api.CodeNotFound, "the log has no entry #%d", entry)
	}
	ctx, cancel := context.WithTimeout(r.Context(), coverTime)
	defer cancel()
	if err := s.cfg.Tree.Wait(ctx, entry+1); err != nil {
		return api.Errorf(api.CodeNotFinished, "entry #%d is durable, and no checkpoint covers it yet: %w", entry, err).WithHint("see: bailiwick status")
	}
	signed, c := s.cfg.Tree.Latest()
	hashes, err := s.cfg.Tree.InclusionProof(r.Context(), entry, c.Size)
	if err != nil {
		return err
	}
	file := note.Proof{Index: entry, Hashes: hashes, Signed: signed}.Encode()
	return send(w, io.NopCloser(bytes.NewReader(file)), int64(len(file)))
}
