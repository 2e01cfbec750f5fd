package daemoncli

import (
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/front/telemetry"
	"github.com/bailiwick-dev/bailiwick/internal/front/websetting"
)

// settings is the content of the service's configuration file. The zero value is
// the default.
type settings struct {
	File      string // empty without a file
	Digest    api.Digest
	Log       logSettings
	Metrics   metricsSettings
	Tracing   tracingSettings
	Retention retentionSettings
	OAuth     oauthSettings
	Login     loginSettings
	Server    serverSettings
	Keys      keySettings
	Anchors   anchorsSettings
	Notify    []notifySettings
	Secrets   secretsSettings
	Web       websetting.Setting // of the page for several people

	Orchestrator orchestratorSettings

	former []anchorSettings // of the previous start, no longer configured; they are compared once more
}

type logSettings struct {
	JSON  bool
	Level slog.Level // info
}

type metricsSettings struct {
	Listen telemetry.Address // zero: not served
}

type tracingSettings struct {
	OTLP telemetry.Address // zero: not exported
}

// private returns the file of the configuration and the keys and secrets that it
// names, which no jail is shown.
func (s settings) private() (places []string) {
	places = append(places, s.File, s.Server.Key, s.Keys.Statements, s.Web.Key, s.Web.Secret)
	for _, a := range s.Anchors.List {
		places = append(places, a.Credentials)
	}
	for _, n := range s.Notify {
		places = append(places, n.Secret)
	}
	places = append(places, s.Secrets.private()...)
	return slices.DeleteFunc(places, func(p string) bool { return p == "" })
}

// sections returns the reader of each section of the file.
func (r *settingsReader) sections() map[string]func(*yaml.Node) {
	return map[string]func(*yaml.Node){
		"version":   r.version,
		"log":       r.log,
		"metrics":   r.metrics,
		"tracing":   r.tracing,
		"retention": r.retention,
		"oauth":     r.oauth,
		"login":     r.login,
		"server":    r.server,
		"keys":      r.keys,
		"anchors":   r.anchors,
		"notify":    r.notify,
		"secrets":   r.secrets,
		"web":       func(n *yaml.Node) { r.s.Web = websetting.Read(&r.Parser, n) },

		"orchestrator": r.orchestrator,
	}
}

// settingsReader reads one file and collects all its problems.
type settingsReader struct {
	strictyaml.Parser
	versioned bool
	s         settings
}

// settings reads the configuration of a start: see configPath.
func (t *tree) settings() (s settings, err error) {
	known, _, err := t.remembered()
	if err != nil {
		return settings{}, err
	}
	if path := t.configPath(&known); path != "" {
		b, err := t.files().read(path)
		if err != nil && path != t.config && path == known.File {
			return settings{}, forgotten(t.Dirs.Mode, path, err)
		}
		if err != nil {
			return settings{}, api.Errorf(api.CodeInvalid, "configuration: %w", err)
		}
		if s, err = parseSettings(path, b); err != nil {
			return settings{}, err
		}
	}
	s.former = known.former(t.Dirs.State, s.Anchors)
	return s, nil
}

// parseSettings parses the content of a file; path is for its messages.
func parseSettings(path string, b []byte) (settings, error) {
	r := &settingsReader{Parser: strictyaml.Parser{List: strictyaml.List{File: path}}, s: settings{File: path, Digest: api.DigestOf(b)}}
	if n := r.Document(b); n != nil {
		r.Fields(n, "configuration", r.sections())
		if !r.versioned && n.Kind == yaml.MappingNode {
			r.At(n, "configuration: the key \"version\" is missing; write \"version: 1\"")
		}
	}
	if err := r.Err(); err != nil {
		return settings{}, err
	}
	return r.s, nil
}

func (r *settingsReader) version(n *yaml.Node) {
	r.versioned = true
	if r.Count(n, "version") > 1 {
		r.At(n, "version: this build reads version 1")
	}
}

func (r *settingsReader) log(n *yaml.Node) {
	r.Fields(n, "log", map[string]func(*yaml.Node){
		"format": func(n *yaml.Node) { r.s.Log.JSON = r.choice(n, "log.format", "text", "json") == "json" },
		"level": func(n *yaml.Node) {
			if level := r.choice(n, "log.level", "debug", "info", "warn", "error"); level != "" {
				_ = r.s.Log.Level.UnmarshalText([]byte(level)) // a valid level
			}
		},
	})
}

func (r *settingsReader) metrics(n *yaml.Node) {
	r.Fields(n, "metrics", map[string]func(*yaml.Node){
		"listen": func(n *yaml.Node) { r.s.Metrics.Listen = r.address(n, "metrics.listen", telemetry.ParseListen) },
	})
}

func (r *settingsReader) tracing(n *yaml.Node) {
	r.Fields(n, "tracing", map[string]func(*yaml.Node){
		"otlp": func(n *yaml.Node) { r.s.Tracing.OTLP = r.address(n, "tracing.otlp", telemetry.ParseCollector) },
	})
}

// choice reads one of a few words. It returns "" after a problem.
func (r *settingsReader) choice(n *yaml.Node, what string, words ...string) string {
	before := r.Len()
	s := r.Line(n, what)
	if r.Len() == before && !slices.Contains(words, s) {
		r.At(n, "%s: %q is not one of %s%s", what, strictyaml.Clip(s), strings.Join(words, ", "), strictyaml.Suggestion(s, words))
		return ""
	}
	return s
}

// path reads an absolute, clean path.
func (r *settingsReader) path(n *yaml.Node, what string) string {
	before := r.Len()
	s := r.Line(n, what)
	if r.Len() == before && (!filepath.IsAbs(s) || filepath.Clean(s) != s) {
		r.At(n, "%s: %q: want /absolute/path", what, strictyaml.Clip(s))
	}
	return s
}

func (r *settingsReader) address(n *yaml.Node, what string, parse func(string) (telemetry.Address, error)) telemetry.Address {
	before := r.Len()
	s := r.Line(n, what)
	if r.Len() > before {
		return telemetry.Address{}
	}
	a, err := parse(s)
	if err != nil {
		r.At(n, "%s: %q: %v", what, strictyaml.Clip(s), err)
	}
	return a
}

// configCheck is doctor's check of the configuration file.
func (t *doctor) configCheck() check {
	s, err := t.settings()
	switch {
	case err != nil:
		return check{name: "configuration", found: err.Error(), fix: "fix the file; the service does not start with it", invalid: true}
	case s.File == "":
		return check{name: "configuration", ok: true, found: "no " + t.Dirs.ServiceConfig() + ": using the defaults"}
	}
	return check{name: "configuration", ok: true, found: s.File}
}

// absolute makes the paths of flags absolute, because the service runs in another
// directory.
func (t *tree) absolute() error {
	for _, path := range []*string{&t.config, &t.socket} {
		if *path == "" {
			continue
		}
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	return nil
}

// logger returns the logger that the file configures.
func (s settings) logger(to io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: s.Log.Level}
	if s.Log.JSON {
		return slog.New(slog.NewJSONHandler(to, opts))
	}
	return slog.New(slog.NewTextHandler(to, opts))
}
