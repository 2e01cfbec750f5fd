package sourcefetch

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// Bounds of one fetch.
const (
	maxTime    = 5 * time.Minute
	maxBytes   = 4 << 30  // that the server may send, and that the jail may write
	maxCache   = 16 << 30 // of what was fetched of one source before
	maxMessage = 2 << 10
)

// Config configures Run.
type Config struct {
	Dirs api.Dirs
	In   io.Reader       // a record.FetchRequest, open as long as the service waits
	Out  io.Writer       // gets a record.FetchResult
	Dial egress.DialFunc // nil: public hosts
}

var errAbandoned = errors.New("the service no longer waits")

// Run answers one request. Its error is that of In or Out; that of the fetch is in the
// result.
func Run(ctx context.Context, cfg Config) error {
	in := bufio.NewReader(cfg.In)
	line, err := bufio.NewReader(io.LimitReader(in, record.MaxFetchLine)).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	var req record.FetchRequest
	if err := canon.Decode(line, &req); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	if cfg.Dial == nil {
		cfg.Dial = egress.Public(egress.Config{}).DialContext
	}
	ctx, stop := context.WithTimeoutCause(ctx, maxTime, fmt.Errorf("it takes longer than %v", maxTime))
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		_, _ = io.Copy(io.Discard, cfg.In)
		cancel(errAbandoned)
	}()
	var result record.FetchResult
	if result.Commit, err = get(ctx, cfg, req); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		result = record.FetchResult{Error: message(err, req)}
	}
	doc, err := json.Marshal(result)
	if err == nil {
		_, err = cfg.Out.Write(append(doc, '\n'))
	}
	return err
}

// message is the text of an error, short and printable. A server may send the secret
// back in what it says.
func message(err error, req record.FetchRequest) string {
	text := err.Error()
	if req.Secret != "" {
		text = redact.New([]string{req.Secret, base64.StdEncoding.EncodeToString([]byte(userOf(req.Source) + ":" + req.Secret))}).Text(text)
	}
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.Join(strings.Fields(cuttext.Text(text, maxMessage)), " "))
}

// get returns the commit that a request names once it is in the cache.
func get(ctx context.Context, cfg Config, req record.FetchRequest) (string, error) {
	if err := checkName(req.Commit); err != nil {
		return "", err
	}
	u, err := url.Parse(req.Source.Repo)
	if err != nil || !api.IsRemote(req.Source.Repo) || u.Host == "" {
		return "", fmt.Errorf("%q is not a URL to fetch", req.Source.Repo)
	}
	c, err := openCache(ctx, cfg.Dirs.Fetched(req.Source))
	if err != nil {
		return "", err
	}
	defer c.close()
	full := isObject(req.Commit)
	if full && c.has(ctx, req.Commit) {
		return req.Commit, nil
	}
	s, err := newSession(ctx, cfg, req, u, c)
	if err != nil {
		return "", err
	}
	defer s.close()
	want := found{object: req.Commit, commit: req.Commit}
	if !full {
		if want, err = s.resolve(ctx, req.Commit); err != nil {
			return "", err
		}
		if c.has(ctx, want.commit) {
			return want.commit, nil
		}
	}
	if err = s.fetch(ctx, want, len(c.commits()) > 0); err != nil && len(c.commits()) > 0 && ctx.Err() == nil && s.out.failure() == nil {
		err = s.fetch(ctx, want, false) // what is there may be damaged
	}
	if err != nil {
		return "", err
	}
	return want.commit, c.add(ctx, want.commit, s.jail.Workspace())
}

// userOf is the user of a URL with a secret. Servers that take tokens ignore it.
func userOf(s api.Source) string {
	if s.User == "" {
		return "git"
	}
	return s.User
}
