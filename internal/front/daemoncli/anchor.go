package daemoncli

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/state/anchor"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// Bounds and defaults of the section.
const (
	maxAnchors     = 16
	minEvery       = time.Second
	defaultEvery   = time.Minute
	defaultRetain  = 365 * 24 * time.Hour
	defaultBranch  = "bailiwick"
	requestTimeout = 20 * time.Second
	defaultAnchor  = "local"
	maxCertificate = 64
)

// anchorsSettings is the section anchors. The zero value is the default: a file in
// the state directory.
type anchorsSettings struct {
	Set  bool // whether the section exists
	List []anchorSettings
}

// anchorSettings configures one anchor. Only the fields of its kind are set.
type anchorSettings struct {
	Name  string
	Kind  receipt.Kind
	Every time.Duration

	Path                                              string        // file
	Repository, Branch                                string        // git
	Endpoint, Region, Bucket, Prefix, Credentials, CA string        // s3; CA: also of tsa
	Retain                                            time.Duration // s3
	URL, Roots                                        string        // tsa
}

// all returns the configured anchors, or the default one.
func (s anchorsSettings) all(state string) []anchorSettings {
	if s.Set {
		return s.List
	}
	return []anchorSettings{{Name: defaultAnchor, Kind: receipt.File, Every: defaultEvery, Path: filepath.Join(state, "high-water")}}
}

func (r *settingsReader) anchors(n *yaml.Node) {
	r.s.Anchors.Set = true
	seen := map[string]bool{}
	r.Items(n, "anchors", func(i int, item *yaml.Node) {
		what := fmt.Sprintf("anchors[%d]", i)
		if i >= maxAnchors {
			if i == maxAnchors {
				r.At(item, "anchors: more than %d", maxAnchors)
			}
			return
		}
		before := r.Len()
		a := r.anchor(item, what)
		if r.Len() > before {
			return
		}
		if !receipt.ValidName(a.Name) {
			r.At(item, "%s.name: %q: want 1 to 63 of a-z, 0-9 and -", what, strictyaml.Clip(a.Name))
		} else if seen[a.Name] {
			r.At(item, "%s.name: duplicate name %q", what, a.Name)
		}
		seen[a.Name] = true
		r.s.Anchors.List = append(r.s.Anchors.List, a)
	})
}

// anchor reads one anchor. Its kind determines the allowed keys.
func (r *settingsReader) anchor(n *yaml.Node, what string) (a anchorSettings) {
	kind := keyOf(n, "kind")
	if kind == nil {
		r.At(n, "%s: the key \"kind\" is missing; write one of file, git, s3, tsa", what)
		return a
	}
	a.Kind = receipt.Kind(r.choice(kind, what+".kind", "file", "git", "s3", "tsa"))
	a.Every, a.Branch, a.Retain = defaultEvery, defaultBranch, defaultRetain
	line := func(name string, to *string) (string, func(*yaml.Node)) {
		return name, func(n *yaml.Node) { *to = r.Line(n, what+"."+name) }
	}
	path := func(name string, to *string) (string, func(*yaml.Node)) {
		return name, func(n *yaml.Node) { *to = r.path(n, what+"."+name) }
	}
	readers := map[string]func(*yaml.Node){
		"kind": func(*yaml.Node) {},
		"name": func(n *yaml.Node) { a.Name = r.Line(n, what+".name") },
		"every": func(n *yaml.Node) {
			if a.Every = r.age(n, what+".every"); a.Every != 0 && a.Every < minEvery {
				r.At(n, "%s.every: %s is too short: want at least %s", what, a.Every, minEvery)
			}
		},
	}
	add := func(name string, read func(*yaml.Node)) { readers[name] = read }
	var needed []string
	switch a.Kind {
	case receipt.File:
		add(path("path", &a.Path))
		needed = []string{"path"}
	case receipt.Git:
		add("repository", func(n *yaml.Node) {
			a.Repository = strings.TrimPrefix(r.Line(n, what+".repository"), "file://")
		})
		add(line("branch", &a.Branch))
		needed = []string{"repository"}
	case receipt.S3:
		add(line("endpoint", &a.Endpoint))
		add(line("region", &a.Region))
		add(line("bucket", &a.Bucket))
		add(line("prefix", &a.Prefix))
		add(path("credentials", &a.Credentials))
		add(path("ca", &a.CA))
		add("retain", func(n *yaml.Node) { a.Retain = r.age(n, what+".retain") })
		needed = []string{"endpoint", "region", "bucket", "credentials"}
	case receipt.TSA:
		add(line("url", &a.URL))
		add(path("roots", &a.Roots))
		add(path("ca", &a.CA))
		needed = []string{"url", "roots"}
	default:
		return a
	}
	before := r.Len()
	r.Fields(n, what, readers)
	for _, name := range append([]string{"name"}, needed...) {
		if keyOf(n, name) == nil {
			r.At(n, "%s: the key %q is missing", what, name)
		}
	}
	if r.Len() == before {
		if err := a.check(); err != nil {
			r.At(n, "%s: %v", what, err)
		}
	}
	return a
}

// keyOf returns the value of a key of a mapping, or nil.
func keyOf(n *yaml.Node, name string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// check refuses settings that the anchor's driver would refuse. It opens nothing.
func (a anchorSettings) check() error {
	var err error
	switch a.Kind {
	case receipt.File:
		_, err = anchor.NewFile(anchor.FileConfig{Path: a.Path})
	case receipt.Git:
		_, err = anchor.NewGit(anchor.GitConfig{Repository: a.Repository, Branch: a.Branch})
	case receipt.S3:
		if _, err = anchor.NewS3(anchor.S3Config{Endpoint: a.Endpoint, Region: a.Region, Bucket: a.Bucket, Prefix: a.Prefix, Retain: a.Retain}); err == nil {
			_, err = dialFor(a.Endpoint)
		}
	case receipt.TSA:
		if u, parseErr := url.Parse(a.URL); parseErr != nil || u.Scheme != "https" {
			return fmt.Errorf("url %q: want https://HOST[:PORT]/PATH", strictyaml.Clip(a.URL))
		}
		_, err = dialFor(a.URL)
	}
	return err
}

// anchorOpener opens anchors. It connects to none, but their local key and certificate
// files must be valid.
type anchorOpener struct {
	state  string // directory
	views  string // GitConfig.Views: what git anchors leave there after a kill; "" for doctor
	files  ownFiles
	now    func() time.Time
	logger *slog.Logger
}

// anchorOpener opens the anchors of the service.
func (t *tree) anchorOpener(logger *slog.Logger) anchorOpener {
	return anchorOpener{t.Dirs.State, filepath.Join(t.Dirs.State, "anchor", "views"), t.files(), t.Now, logger}
}

// schedules opens the configured anchors.
func (o anchorOpener) schedules(s anchorsSettings) ([]anchor.Schedule, error) {
	var list []anchor.Schedule
	for _, a := range s.all(o.state) {
		one, err := o.open(a)
		if err != nil {
			return nil, fmt.Errorf("anchor %q: %w", a.Name, err)
		}
		list = append(list, anchor.Schedule{Anchor: one, Every: a.Every})
	}
	return list, nil
}

func (o anchorOpener) open(a anchorSettings) (anchor.Anchor, error) {
	switch a.Kind {
	case receipt.File:
		return anchor.NewFile(anchor.FileConfig{Name: a.Name, Path: a.Path, Now: o.now, Logger: o.logger})
	case receipt.Git:
		return anchor.NewGit(anchor.GitConfig{Name: a.Name, Repository: a.Repository, Branch: a.Branch, Scratch: filepath.Join(o.state, "anchor", a.Name+".git"), Views: o.views, Now: o.now})
	case receipt.S3, receipt.TSA:
	}
	cfg := egress.ClientConfig{Timeout: requestTimeout}
	var err error
	if cfg.Dial, err = dialFor(cmp.Or(a.Endpoint, a.URL)); err != nil {
		return nil, err
	}
	if cfg.Roots, err = o.files.pool(a.CA); err != nil {
		return nil, err
	}
	client := egress.Client(cfg)
	if a.Kind == receipt.TSA {
		roots, err := o.files.certificates(a.Roots)
		if err != nil {
			return nil, err
		}
		return anchor.NewTSA(anchor.TSAConfig{Name: a.Name, URL: a.URL, Client: client, Roots: roots, Now: o.now})
	}
	if _, err := o.files.storeKeys(a.Credentials); err != nil {
		return nil, err
	}
	return anchor.NewS3(anchor.S3Config{
		Name: a.Name, Endpoint: a.Endpoint, Region: a.Region, Bucket: a.Bucket, Prefix: a.Prefix, Client: client, Retain: a.Retain, Now: o.now, Logger: o.logger,
		Keys: func() (anchor.S3Keys, error) { return o.files.storeKeys(a.Credentials) },
	})
}
