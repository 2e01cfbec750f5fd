package api

import (
	"path/filepath"
	"strconv"
	"strings"
)

// Dirs are the places of one installation, by the XDG base directory
// specification.
type Dirs struct {
	Data    string // catalog and trust root: written by people, read by the service
	Config  string // deploy key, configuration of the service
	State   string // the service's own: state database, dispatches, service key
	Runtime string // sockets; empty when the system has no such place
}

// LocalLogin returns the WHO of local:WHO for an account: its name, or
// uid:NUMBER when it has none that a principal can carry.
func LocalLogin(name string, uid int) string {
	if _, err := ParsePrincipal("local:" + name); err != nil || strings.ContainsRune(name, ':') {
		return "uid:" + strconv.Itoa(uid)
	}
	return name
}

// DirsFrom derives the places from the environment, which getenv reads.
func DirsFrom(getenv func(string) string, uid int) Dirs {
	home := getenv("HOME")
	under := func(variable, fallback string) string {
		base := getenv(variable)
		if !filepath.IsAbs(base) {
			base = filepath.Join(home, fallback)
		}
		return filepath.Join(base, "bailiwick")
	}
	d := Dirs{
		Data:   under("XDG_DATA_HOME", ".local/share"),
		Config: under("XDG_CONFIG_HOME", ".config"),
		State:  under("XDG_STATE_HOME", ".local/state"),
	}
	if base := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(base) {
		d.Runtime = filepath.Join(base, "bailiwick")
	} else if uid > 0 {
		d.Runtime = filepath.Join("/run/user", strconv.Itoa(uid), "bailiwick")
	}
	return d
}

// Check refuses places that depend on where a program happens to be run, which
// they do without a home.
func (d Dirs) Check() error {
	for _, place := range []struct{ variable, dir string }{{"XDG_DATA_HOME", d.Data}, {"XDG_CONFIG_HOME", d.Config}, {"XDG_STATE_HOME", d.State}} {
		if !filepath.IsAbs(place.dir) {
			return Errorf(CodeInvalid, "neither HOME nor %s is an absolute path, so there is no place for what belongs there", place.variable).
				WithHint("set HOME, or all of XDG_DATA_HOME, XDG_CONFIG_HOME and XDG_STATE_HOME")
		}
	}
	return nil
}

// Catalog is the catalog's folder.
func (d Dirs) Catalog() string { return filepath.Join(d.Data, "catalog") }

// TrustRoot is the file that says which deploy keys sign for this
// installation.
func (d Dirs) TrustRoot() string { return filepath.Join(d.Data, "trust.json") }

// DeployKey is where the deploy key is kept unless told otherwise.
func (d Dirs) DeployKey() string { return filepath.Join(d.Config, "deploy.key") }

// OperatorRoot is the file that says which operator keys sign for this
// installation.
func (d Dirs) OperatorRoot() string { return filepath.Join(d.Data, "operators.json") }

// OperatorKey is where the operator's key is kept unless told otherwise.
func (d Dirs) OperatorKey() string { return filepath.Join(d.Config, "operator.key") }

// ServiceConfig is where the service's configuration is, if there is one.
func (d Dirs) ServiceConfig() string { return filepath.Join(d.Config, "service.yaml") }

// Blobs is the folder of inputs, manifests, patches, outputs and results.
func (d Dirs) Blobs() string { return filepath.Join(d.State, "blobs") }

// Store is the folder of the state database.
func (d Dirs) Store() string { return filepath.Join(d.State, "store") }

// Log is where the service keeps the tree over its log.
func (d Dirs) Log() string { return filepath.Join(d.State, "log") }

// Address is the file that says where the service of this state listens.
func (d Dirs) Address() string { return filepath.Join(d.State, "address") }

// Scratch is the folder of what lives as long as one call. The service empties
// it when it starts.
func (d Dirs) Scratch() string { return filepath.Join(d.State, "scratch") }

// Checkouts is the folder of the read-only checkouts that workspaces start
// from. All of it can be made again.
func (d Dirs) Checkouts() string { return filepath.Join(d.State, "checkouts") }

// Dispatch is the folder of one attempt.
func (d Dirs) Dispatch(id DispatchID, attempt int) string {
	return filepath.Join(d.State, "dispatches", string(id), strconv.Itoa(attempt))
}

// Sockets are the places where a client looks for the service, in order. A
// service that is not told otherwise listens at the first whose parent's
// parent exists.
func (d Dirs) Sockets() []string {
	var out []string
	if d.Runtime != "" {
		out = append(out, filepath.Join(d.Runtime, socketName))
	}
	return append(out, filepath.Join("/run/bailiwick", socketName), filepath.Join(d.State, socketName))
}

const socketName = "api.sock"
