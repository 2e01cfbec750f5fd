package api

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The modes of an installation.
const (
	ModeSameUser = "same-user" // service, catalog, keys and callers share one account
	ModeSystem   = "system"    // the service, its workers and the trust roots have accounts of their own
)

// StartRuns is what a person does so that a service in a mode continues runs: it starts an orchestrator.
func StartRuns(mode string) string {
	if mode == ModeSystem {
		return "orchestrator: {} in /etc/bailiwick/service.yaml of its machine, then: " + RestartService(mode)
	}
	return "bailiwick up --orchestrator"
}

// StartService is the command that starts the service of a mode.
func StartService(mode string) string {
	if mode == ModeSystem {
		return "sudo systemctl start bailiwick.service"
	}
	return "bailiwick up"
}

// RestartService is the command that restarts the service of a mode.
func RestartService(mode string) string {
	if mode == ModeSystem {
		return "sudo systemctl restart bailiwick.service"
	}
	return "bailiwick down, then bailiwick up"
}

// RestartRuns is RestartService for a service that continues runs.
func RestartRuns(mode string) string {
	if mode == ModeSystem {
		return RestartService(mode) // its configuration has the orchestrator
	}
	return "bailiwick down, then " + StartRuns(mode)
}

// StartConfigured starts the service of a mode with a configuration that a person names.
func StartConfigured(mode string) string {
	if mode == ModeSystem {
		return "write /etc/bailiwick/service.yaml, then: " + StartService(mode)
	}
	return "bailiwick up --config FILE"
}

// ModeVariable is the environment variable that chooses the mode of a program.
const ModeVariable = "BAILIWICK_MODE"

// Dirs are the directories of one installation: by the XDG base directory
// specification in mode same-user, fixed places of the machine in mode system.
type Dirs struct {
	Mode    string // ModeSameUser or ModeSystem; empty: ModeSameUser
	Trust   string // trust root, operators' first set, settings; empty: in Data and Config
	Data    string // catalog and trust root: written by people, read by the service
	Config  string // deploy key, configuration of the service
	State   string // of the service: state database, dispatches, service key
	Runtime string // sockets; empty if the system has none
	Home    string // of the account; empty if unknown
}

// LocalLogin returns the WHO of local:WHO for an account: its name, or uid:NUMBER
// if the name is not valid in a principal.
func LocalLogin(name string, uid int) string {
	if _, err := ParsePrincipal("local:" + name); err != nil || strings.ContainsRune(name, ':') {
		return "uid:" + strconv.Itoa(uid)
	}
	return name
}

// DirsFrom derives the directories from the environment: the ones of mode system only if
// ModeVariable says so. Programs of people use package installation instead.
func DirsFrom(getenv func(string) string, uid int) Dirs {
	if getenv(ModeVariable) == ModeSystem {
		return SystemDirs(getenv)
	}
	return userDirs(getenv, uid)
}

// SystemDirs are the directories of the machine's installation, as the service and
// each person see them. Config and Home are the account's own.
func SystemDirs(getenv func(string) string) Dirs {
	own := userDirs(getenv, 0)
	return Dirs{
		Mode: ModeSystem, Trust: "/etc/bailiwick", Data: "/var/lib/bailiwick-catalog", State: "/var/lib/bailiwick", Runtime: "/run/bailiwick",
		Config: own.Config, Home: own.Home,
	}
}

func userDirs(getenv func(string) string, uid int) Dirs {
	home := getenv("HOME")
	under := func(variable, fallback string) string {
		base := getenv(variable)
		if !filepath.IsAbs(base) {
			base = filepath.Join(home, fallback)
		}
		return filepath.Join(base, "bailiwick")
	}
	d := Dirs{
		Mode:   cmp.Or(getenv(ModeVariable), ModeSameUser),
		Data:   under("XDG_DATA_HOME", ".local/share"),
		Config: under("XDG_CONFIG_HOME", ".config"),
		State:  under("XDG_STATE_HOME", ".local/state"),
		Home:   home,
	}
	if base := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(base) {
		d.Runtime = filepath.Join(base, "bailiwick")
	} else if uid > 0 {
		d.Runtime = filepath.Join("/run/user", strconv.Itoa(uid), "bailiwick")
	}
	return d
}

// System reports whether the installation is the machine's.
func (d Dirs) System() bool { return d.Mode == ModeSystem }

// Check refuses relative directories, the result of an unset HOME, and an unknown mode.
func (d Dirs) Check() error {
	if !slices.Contains([]string{"", ModeSameUser, ModeSystem}, d.Mode) {
		return Errorf(CodeInvalid, "%s=%q: want %s or %s", ModeVariable, d.Mode, ModeSameUser, ModeSystem).WithHint("unset it to use the installation of this machine, if there is one")
	}
	for _, place := range []struct{ variable, dir string }{{"XDG_DATA_HOME", d.Data}, {"XDG_CONFIG_HOME", d.Config}, {"XDG_STATE_HOME", d.State}} {
		if !filepath.IsAbs(place.dir) {
			return Errorf(CodeInvalid, "neither HOME nor %s is an absolute path", place.variable).
				WithHint("set HOME, or all of XDG_DATA_HOME, XDG_CONFIG_HOME and XDG_STATE_HOME")
		}
	}
	return nil
}

// Catalog is the directory of the catalog.
func (d Dirs) Catalog() string { return filepath.Join(d.Data, "catalog") }

// Agents is the directory of the agent programs that bailiwick agent install put there.
func (d Dirs) Agents() string { return filepath.Join(d.Data, "agents") }

// TrustRoot is the file that lists the deploy keys of this installation.
func (d Dirs) TrustRoot() string { return filepath.Join(cmp.Or(d.Trust, d.Data), "trust.json") }

// TrustChain is the file with the sets of deploy keys that follow the trust root, each signed by
// the one before. It is in the directory of the catalog, which the same people write.
func (d Dirs) TrustChain() string { return filepath.Join(d.Catalog(), "deploy-keys") }

// DeployKey is the default path of the deploy key.
func (d Dirs) DeployKey() string { return filepath.Join(d.Config, "deploy.key") }

// OperatorRoot is the file that lists the operator keys of this installation.
func (d Dirs) OperatorRoot() string { return filepath.Join(cmp.Or(d.Trust, d.Data), "operators.json") }

// OperatorKey is the default path of the operator's key.
func (d Dirs) OperatorKey() string { return filepath.Join(d.Config, "operator.key") }

// ServiceConfig is the default path of the service's configuration file.
func (d Dirs) ServiceConfig() string {
	return filepath.Join(cmp.Or(d.Trust, d.Config), "service.yaml")
}

// LaunchConfig is the file with the settings of the launcher. In mode system only.
func (d Dirs) LaunchConfig() string { return filepath.Join(d.Trust, "launch.yaml") }

// SecretsRecipient is the file with the age recipient that secrets are encrypted to. In
// mode system only.
func (d Dirs) SecretsRecipient() string { return filepath.Join(d.Trust, "secrets.pub") }

// LauncherState is the directory of the launcher: what it started, and in mode system its
// marks and the identity that decrypts secrets.
func (d Dirs) LauncherState() string {
	if d.Mode == ModeSystem {
		return d.State + "-launch"
	}
	return filepath.Join(d.State, "launch")
}

// LauncherSocket is the unix socket of the launcher. In mode system only.
func (d Dirs) LauncherSocket() string { return d.Runtime + "-launch/launch.sock" }

// Blobs is the directory of inputs, manifests, patches, outputs and results.
func (d Dirs) Blobs() string { return filepath.Join(d.State, "blobs") }

// Store is the directory of the state database.
func (d Dirs) Store() string { return filepath.Join(d.State, "store") }

// Log is the directory of the tree over the log.
func (d Dirs) Log() string { return filepath.Join(d.State, "log") }

// Secrets is the directory of the values that bailiwick secret set stores, encrypted,
// and of the identity that decrypts them.
func (d Dirs) Secrets() string { return filepath.Join(d.State, "secrets") }

// Address is the file with the socket of this state's service.
func (d Dirs) Address() string { return filepath.Join(d.State, "address") }

// Page is the unix socket by which bailiwick web open gets a code from the page that is
// being served. In mode system it is in the account's own directory.
func (d Dirs) Page() string {
	if d.System() {
		return filepath.Join(d.Config, "page.sock")
	}
	return filepath.Join(d.State, "page.sock")
}

// Private is the file with the places that this state's service uses outside its
// directories and no jail is shown, one to a line: its socket, its configuration,
// and the keys and secrets that it names.
func (d Dirs) Private() string { return filepath.Join(d.State, "private") }

// Scratch is the directory of temporary files. The service empties it at its start.
func (d Dirs) Scratch() string { return filepath.Join(d.State, "scratch") }

// ToolServer is the directory of what the tool hosts of a server keep: which approvals were
// used.
func (d Dirs) ToolServer(name Name) string {
	return filepath.Join(d.State, "toolservers", string(name))
}

// Checkouts is the directory of the cached read-only checkouts that workspaces
// start from.
func (d Dirs) Checkouts() string { return filepath.Join(d.State, "checkouts") }

// Fetched is the directory of what the service has fetched of a source by URL. Sources
// that differ in the credential share none: one may show less than another.
func (d Dirs) Fetched(s Source) string {
	sum := sha256.Sum256([]byte(s.Repo + "\x00" + s.User + "\x00" + string(s.Secret)))
	return filepath.Join(d.State, "sources", hex.EncodeToString(sum[:16]))
}

// Repository is the git repository that workspaces of a source start from.
func (d Dirs) Repository(s Source) string {
	if IsRemote(s.Repo) {
		return filepath.Join(d.Fetched(s), "git")
	}
	return s.Repo
}

// Dispatch is the directory of one attempt.
func (d Dirs) Dispatch(id DispatchID, attempt int) string {
	return filepath.Join(d.State, "dispatches", string(id), strconv.Itoa(attempt))
}

// Sockets lists the paths where a client looks for the service, in order.
func (d Dirs) Sockets() []string {
	var out []string
	if d.Runtime != "" {
		out = append(out, filepath.Join(d.Runtime, socketName))
	}
	if d.System() {
		return out
	}
	return append(out, filepath.Join(d.State, socketName))
}

const socketName = "api.sock"
