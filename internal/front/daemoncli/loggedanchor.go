package daemoncli

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// within makes the path of a file in the state directory relative to it, since the state
// may move: from reverses it.
func (a anchorSettings) within(state string) anchorSettings {
	if rel, err := filepath.Rel(state, a.Path); a.Kind == receipt.File && err == nil && filepath.IsLocal(rel) {
		a.Path = rel
	}
	return a
}

func (a anchorSettings) from(state string) anchorSettings {
	if a.Kind == receipt.File && !filepath.IsAbs(a.Path) {
		a.Path = filepath.Join(state, a.Path)
	}
	return a
}

// unlisted returns the anchors of a logged configuration that are not in list. It fails
// if the log does not have all of one.
func unlisted(mode, state string, c *record.ServiceConfig, list []anchorSettings) (out []anchorSettings, err error) {
	logged := map[string]map[string]string{} // by name
	for _, setting := range c.Settings {
		key, value, _ := strings.Cut(strings.TrimPrefix(setting, "anchors."), "=")
		name, field, ok := strings.Cut(key, ".")
		if !ok || !strings.HasPrefix(setting, "anchors.") {
			continue
		}
		if logged[name] == nil {
			logged[name] = map[string]string{}
		}
		logged[name][field] = value
	}
	for _, name := range slices.Sorted(maps.Keys(logged)) {
		if logged[name]["kind"] == string(receipt.TSA) || slices.ContainsFunc(list, func(a anchorSettings) bool { return a.isLogged(state, name, logged[name]) }) {
			continue // a TSA keeps nothing
		}
		a, err := loggedAnchor(name, logged[name])
		if err != nil {
			return nil, api.Errorf(api.CodeIntegrity, "by the log, this state was last started with the anchor %q, which neither its configuration nor its memory has; the log has not all of it: %w", name, err).
				WithHint("restore the whole state directory from one backup, or start once with the configuration as it was, %s: %s", c.File, api.StartConfigured(mode))
		}
		if a = a.from(state); !slices.ContainsFunc(list, a.samePlace) {
			out = append(out, a)
		}
	}
	return out, nil
}

// isLogged reports whether the log has a under a name, in full or cut.
func (a anchorSettings) isLogged(state, name string, logged map[string]string) bool {
	all := map[string]string{}
	a = a.within(state)
	a.meaning(all)
	for _, field := range []string{"kind", "place", "branch"} {
		prefix := "anchors." + name + "." + field
		if !record.SameText(prefix+"="+logged[field], prefix+"="+all[prefix]) {
			return false
		}
	}
	return a.Name == name
}

// loggedAnchor is the reverse of anchorSettings.meaning, for anchors that keep something.
func loggedAnchor(name string, logged map[string]string) (anchorSettings, error) {
	a := anchorSettings{
		Name: name, Kind: receipt.Kind(logged["kind"]), Every: defaultEvery, Retain: defaultRetain,
		Branch: cmp.Or(logged["branch"], defaultBranch), Credentials: logged["credentials"], CA: logged["ca"],
	}
	for field, value := range logged {
		if strings.Contains(value, "...[") {
			return a, fmt.Errorf("%s was too long", field)
		}
	}
	if d, err := time.ParseDuration(logged["retain"]); err == nil {
		a.Retain = d
	}
	place := logged["place"]
	switch a.Kind {
	case receipt.File:
		a.Path = place
		if filepath.IsLocal(place) { // in the state
			return a, nil
		}
	case receipt.Git:
		a.Repository = place
	case receipt.S3:
		parts := append(strings.Split(place, " "), "")
		if len(parts) < 4 || len(parts) > 5 {
			return a, fmt.Errorf("place %q", place)
		}
		a.Endpoint, a.Region, a.Bucket, a.Prefix = parts[0], parts[1], parts[2], parts[3]
	case receipt.TSA:
	default:
		return a, fmt.Errorf("kind %q", a.Kind)
	}
	return a, a.check()
}
