// Package deploycli is the command tree of bailiwick-deploy: set-up, keys, the
// catalog, and the signatures under an operator's decisions.
//
// It asks for passphrases only on the controlling terminal, never takes one from
// a variable, a flag or standard input, and does not read the environment itself.
// Before it signs an operator's decision it shows all of it in plain words. Values of
// secrets for a plan come from that terminal or a file, and go to the server of tools that
// uses them.
// Answers go to standard output, everything else to standard error.
//
// It carries the command side of R-B1, R-B9 (key handling) and R-C6.
package deploycli

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/base/mountinfo"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// Config is what the program needs of its process.
type Config struct {
	Stdin          io.Reader // the operator record to sign; never a passphrase
	Stdout, Stderr io.Writer
	Now            func() time.Time
	Dirs           api.Dirs
	Login          string     // of the user, as from api.LocalLogin
	Host           string     // name of this machine
	Screen         bool       // the standard output is a terminal
	Width          func() int // of the terminal, in columns; 0: unknown
	Colour         bool       // and it shows colour
	Beside         string     // folder of this executable; empty: unknown
	Env            []string   // of bailiwick-toolhost, which runs servers of tools for a plan
	Version        string
}

// Run executes one command line and returns the exit status.
func Run(ctx context.Context, cfg Config, args []string) int {
	p := &program{Config: cfg, keys: keyring{login: cfg.Login, stderr: cfg.Stderr}, o: console.Output{Stdout: cfg.Stdout, Stderr: cfg.Stderr, Screen: cfg.Screen, Width: cfg.Width, Now: cfg.Now}}
	return console.Run(ctx, p.root(), &p.o, args)
}

// program has what all verbs need: where the catalog and its keys are, and the form of
// answers.
type program struct {
	Config
	o       console.Output
	dataDir string
	keys    keyring
	format  string
}

// manual is the text about the verbs.
//
//go:embed verbs.md
var manual string

func (p *program) root() *cobra.Command {
	catalogs, inspect, agents, operators := &catalogVerbs{program: p}, &inspectVerbs{p}, &agentVerbs{p}, &operatorVerbs{p}
	machine := &machineVerbs{p}
	trust := &trustVerbs{machine}
	deployKeys, operatorKeys := &keyVerbs{p, deployKey(p.Dirs)}, &keyVerbs{p, operatorKey(p.Dirs)}
	root := console.ParseManual(manual).Command(console.Verbs{
		"":                 p.programFlags,
		"init":             (&initVerb{p}).command,
		"catalog plan":     catalogs.planCommand,
		"catalog apply":    catalogs.applyCommand,
		"catalog sign":     catalogs.signCommand,
		"catalog move":     catalogs.moveCommand,
		"catalog list":     inspect.listCommand,
		"catalog show":     inspect.showCommand,
		"catalog history":  inspect.historyCommand,
		"catalog diff":     inspect.diffCommand,
		"catalog verify":   inspect.verifyCommand,
		"agent install":    agents.installCommand,
		"agent list":       agents.listCommand,
		"key create":       deployKeys.createCommand,
		"key show":         deployKeys.showCommand,
		"operator keygen":  operatorKeys.createCommand,
		"operator sign":    operators.signCommand,
		"operator passkey": operators.passkeyCommand,
		"operator show":    operatorKeys.showCommand,
		"install":          machine.installCommand,
		"remove":           machine.removeCommand,
		"setup":            machine.setupCommand,
		"trust show":       trust.showCommand,
		"trust add":        trust.addCommand,
		"trust remove":     trust.removeCommand,
		"trust sign":       trust.signCommand,
		"backup":           machine.backupCommand,
		"restore":          machine.restoreCommand,
		"upgrade":          machine.upgradeCommand,
		"purge":            machine.purgeCommand,
		"man":              console.Man(nil),
	})
	root.SetHelpCommandGroupID("Help:")
	root.SetCompletionCommandGroupID("Help:")
	return root
}

func (p *program) programFlags(v *console.Verb) {
	v.Version = p.Version
	v.FlagBelow(&p.dataDir, "data-dir")
	v.FlagBelow(&p.keys.named, "key")
	v.FlagBelow(&p.o.UTC, "utc")
	v.PersistentPreRunE = func(*cobra.Command, []string) error {
		if err := shield(); err != nil {
			return fmt.Errorf("cannot shield this program from other programs of the account: %w", err)
		}
		return p.Dirs.Check()
	}
}

// print writes a line for people to standard error.
func (p *program) print(format string, args ...any) { say(p.Stderr, format, args...) }

// say writes a line for people.
func say(to io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(to, format+"\n", args...) // an error here has nowhere to go
}

// dirs are the directories of the installation, or of the one that --data-dir names.
func (p *program) dirs() api.Dirs {
	d := p.Dirs
	if p.dataDir != "" {
		d.Mode, d.Trust, d.Data = api.ModeSameUser, "", p.dataDir
	}
	return d
}

func (p *program) data() string          { return p.dirs().Data }
func (p *program) trustPath() string     { return p.dirs().TrustRoot() }
func (p *program) operatorsPath() string { return p.dirs().OperatorRoot() }
func (p *program) catalogPath() string   { return p.dirs().Catalog() }

// private are the places of this machine that no target shows.
func (p *program) private() (api.Private, error) {
	mounts, err := mountinfo.Read()
	if err != nil {
		return api.Private{}, fmt.Errorf("mounts of this machine: %w", err)
	}
	v := api.Private{Dirs: p.dirs(), Resolve: filepath.EvalSymlinks, Names: mounts.Names}
	// The worker checks again: a state that this account may not read, or that is elsewhere, is no reason to refuse a plan.
	if places, err := os.ReadFile(v.Dirs.Private()); err == nil {
		v.Also = strings.Split(string(places), "\n")
	}
	for _, key := range p.keys.named {
		if path, err := filepath.Abs(key); err == nil {
			v.Also = append(v.Also, path)
		}
	}
	return v, nil
}

// withCatalog calls fn with the catalog, opened under the trust root. Planning needs
// define, which asks a server of tools for its definitions.
func (p *program) withCatalog(define deploy.Definer, fn func(*deploy.Catalog) error) (err error) {
	root, err := seal.LoadDeployKeys(p.dirs())
	if err != nil {
		return p.initFirst(err)
	}
	private, err := p.private()
	if err != nil {
		return err
	}
	c, err := deploy.Open(deploy.Config{Dir: p.catalogPath(), TrustRoot: root, Now: p.Now, Private: private, Define: define})
	if err != nil {
		return p.initFirst(err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return fn(c)
}

// lostRoot returns the error of a catalog whose trust root is missing. A new root could
// not verify its revisions.
func (p *program) lostRoot() error {
	found, err := exists(p.trustPath())
	if found || err != nil || !console.Published(p.catalogPath()) {
		return err
	}
	return api.Errorf(api.CodeConflict, "the trust root %s is missing, and the catalog %s was signed under it", visible(p.trustPath()), visible(p.catalogPath())).
		WithHint("restore the file from a backup of the data directory; a new trust root could not verify the catalog. If the backup is lost too: move the catalog away, then run bailiwick init and apply each manifest again")
}

// initFirst says how to set up a missing catalog.
func (p *program) initFirst(err error) error {
	if lost := p.lostRoot(); lost != nil {
		return lost
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, blob.ErrNoStore) {
		return api.Errorf(api.CodeNotFound, "%w", err).WithHint("set up a catalog with: bailiwick init; or name another place with --data-dir")
	}
	return err
}

// current returns the current revision, or says how to create the first one.
func current(ctx context.Context, c *deploy.Catalog) (*deploy.Revision, error) {
	r, err := c.Reader().Current(ctx)
	if catalog.FaultOf(err) == catalog.FaultEmpty {
		return nil, api.Errorf(api.CodeNotFound, "%w", err).WithHint("make the first one with: bailiwick catalog apply")
	}
	return r, err
}
