package daemoncli

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/retention"
	"github.com/bailiwick-dev/bailiwick/internal/worker/checkoutcache"
)

// retentionSettings is the section retention: the rules, and how often they are
// applied. By default only checkouts expire, which are a cache; content and evidence
// never do.
type retentionSettings struct {
	Every time.Duration
	Rules retention.Rules
}

// rules returns the settings with their defaults.
func (s retentionSettings) rules() retentionSettings {
	if s.Every == 0 {
		s.Every = time.Hour
	}
	if s.Rules.Checkouts.Age == 0 {
		s.Rules.Checkouts.Age = 7 * 24 * time.Hour
	}
	if s.Rules.Checkouts.Size == 0 {
		s.Rules.Checkouts.Size = 20 << 30
	}
	return s
}

func (r *settingsReader) retention(n *yaml.Node) {
	to := &r.s.Retention
	r.Fields(n, "retention", map[string]func(*yaml.Node){
		"every": func(n *yaml.Node) {
			if to.Every = r.age(n, "retention.every"); to.Every != 0 && to.Every < time.Minute {
				r.At(n, "retention.every: %s is too short: want at least 1m", to.Every)
			}
		},
		"checkouts": func(n *yaml.Node) {
			r.Fields(n, "retention.checkouts", map[string]func(*yaml.Node){
				"age":  func(n *yaml.Node) { to.Rules.Checkouts.Age = r.age(n, "retention.checkouts.age") },
				"size": func(n *yaml.Node) { to.Rules.Checkouts.Size = r.size(n, "retention.checkouts.size") },
			})
		},
		"content": func(n *yaml.Node) {
			r.Fields(n, "retention.content", map[string]func(*yaml.Node){
				"age":   func(n *yaml.Node) { to.Rules.Content.Age = r.age(n, "retention.content.age") },
				"count": func(n *yaml.Node) { to.Rules.Content.Count = r.Count(n, "retention.content.count") },
				"size":  func(n *yaml.Node) { to.Rules.Content.Size = r.size(n, "retention.content.size") },
			})
		},
		"evidence": func(n *yaml.Node) {
			r.Fields(n, "retention.evidence", map[string]func(*yaml.Node){
				"age": func(n *yaml.Node) { to.Rules.Evidence = r.age(n, "retention.evidence.age") },
			})
		},
		"runs": func(n *yaml.Node) {
			r.Fields(n, "retention.runs", map[string]func(*yaml.Node){
				"age": func(n *yaml.Node) { to.Rules.Runs = r.age(n, "retention.runs.age") },
			})
		},
	})
	if err := to.Rules.Check(); err != nil {
		r.At(n, "retention: %v", err)
	}
}

// age reads a duration in Go's format, or a number of days such as 30d.
func (r *settingsReader) age(n *yaml.Node, what string) time.Duration {
	var a ageText
	r.Scalar(n, what, &a)
	return time.Duration(a)
}

func (r *settingsReader) size(n *yaml.Node, what string) int64 {
	var b api.Bytes
	r.Scalar(n, what, &b)
	return int64(b)
}

type ageText time.Duration

// UnmarshalText reads a positive duration of at most a hundred years.
func (a *ageText) UnmarshalText(b []byte) error {
	text := string(b)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err == nil && n > 0 && n <= 36525 && strconv.FormatUint(n, 10) == days {
			*a = ageText(time.Duration(n) * 24 * time.Hour) //nolint:gosec // G115: at most 36525
			return nil
		}
	} else if v, err := time.ParseDuration(text); err == nil && v > 0 && v <= 36525*24*time.Hour {
		*a = ageText(v)
		return nil
	}
	return fmt.Errorf("%q: want a duration such as 30d or 12h, at most 36525d", text)
}

// openRetention opens the garbage collector. It comes last because it needs the
// dispatches.
func (s *service) openRetention(ctx context.Context) (err error) {
	dirs, set := s.t.Dirs, s.set.Retention.rules()
	s.retain, err = retention.Open(ctx, retention.Config{
		Store: s.store, Ledger: s.ledger, Blobs: s.blobs, Dispatches: s.dispatch, Runs: s.archive, Checkouts: checkoutcache.New(dirs.Checkouts()), Rules: set.Rules, Every: set.Every,
		Database: dirs.Store(), Attempts: filepath.Dir(filepath.Dir(dirs.Dispatch("x", 1))), Now: s.t.Now, Logger: s.logger, Room: s.reserve.Ensure,
	})
	return err
}
