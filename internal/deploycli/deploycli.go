// Package deploycli is the command tree of bailiwick-deploy: keys, the first
// set-up, the catalog, and the signature under an operator's decisions.
//
// It asks for passphrases on the controlling terminal and nowhere else, never
// takes one from a variable, a flag or standard input, and reads the
// environment only as its caller hands it over. It signs nothing of an
// operator's that it has not shown there in plain words, whole. Answers go to
// the standard output, everything else to the standard error.
//
// It carries the command side of R-B1, R-B9 (key handling) and R-C6.
package deploycli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// Config is what the program gets from its surroundings.
type Config struct {
	Stdin          io.Reader // what is to be signed as an operator; never a passphrase
	Stdout, Stderr io.Writer
	Now            func() time.Time
	Dirs           api.Dirs
	Login          string // who is running it, as api.LocalLogin says it
	Host           string // where
	Colour         bool   // the standard output is a terminal that shows colour
	Beside         string // folder of this executable; empty: not known
	Version        string
}

// Run executes one command line and returns the exit status.
func Run(ctx context.Context, cfg Config, args []string) int {
	p := &program{Config: cfg}
	root := p.command()
	root.SetArgs(args)
	root.SetOut(cfg.Stdout)
	root.SetErr(cfg.Stderr)
	err := root.ExecuteContext(ctx)
	if errors.Is(err, errChanges) {
		return 2
	}
	if err != nil {
		p.say("bailiwick-deploy: %v", err)
	}
	if errors.Is(err, context.Canceled) {
		return 130
	}
	return api.ExitStatus(err)
}

// errChanges is not a failure: plan --exit-code found changes.
var errChanges = errors.New("there are changes")

type program struct {
	Config
	dataDir string
	keys    []string
	format  string
}

func (p *program) command() *cobra.Command {
	root := &cobra.Command{
		Use:           "bailiwick-deploy",
		Short:         "Define what workers are: keys and the signed catalog; sign an operator's decisions",
		Long:          "bailiwick-deploy defines what workers are, what they can do and what they have access to.\nIt signs with keys that a person holds, and it cannot dispatch anything.",
		Version:       p.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&p.dataDir, "data-dir", "", "where catalog/ and trust.json are (default $XDG_DATA_HOME/bailiwick)")
	root.PersistentFlags().StringArrayVar(&p.keys, "key", nil, "key to sign with; may be given several times (default $XDG_CONFIG_HOME/bailiwick/deploy.key, and operator.key for operator)")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if err := shield(); err != nil {
			return fmt.Errorf("this program cannot be shielded from others of the account: %w", err)
		}
		return p.Dirs.Check()
	}
	root.AddCommand(p.initCommand(), p.keyCommand(), p.catalogCommand(), p.operatorCommand())
	return root
}

// group is a noun, whose verbs are added to it. A verb that it does not have is
// an error: cobra by itself prints help and calls that a success.
func group(use, short string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
}

// say writes a line for people, beside the answer.
func (p *program) say(format string, args ...any) {
	_, _ = fmt.Fprintf(p.Stderr, format+"\n", args...) // nothing is left to tell it to
}

func (p *program) data() string {
	if p.dataDir != "" {
		return p.dataDir
	}
	return p.Dirs.Data
}

func (p *program) trustPath() string { return api.Dirs{Data: p.data()}.TrustRoot() }
func (p *program) operatorsPath() string {
	return api.Dirs{Data: p.data()}.OperatorRoot()
}
func (p *program) catalogPath() string { return api.Dirs{Data: p.data()}.Catalog() }

// keyPaths are the keys to sign with.
func (p *program) keyPaths() []string {
	if len(p.keys) > 0 {
		return p.keys
	}
	return []string{p.Dirs.DeployKey()}
}

// keyPath is the one key that a command is about.
func (p *program) keyPath() (string, error) {
	paths := p.keyPaths()
	if len(paths) != 1 {
		return "", api.Errorf(api.CodeInvalid, "--key: want one here, got %d", len(paths))
	}
	return paths[0], nil
}

// open opens the catalog under the trust root.
func (p *program) open() (*deploy.Catalog, error) {
	root, err := seal.LoadTrustRoot(p.trustPath())
	if err != nil {
		return nil, setUpFirst(err)
	}
	c, err := deploy.Open(deploy.Config{Dir: p.catalogPath(), TrustRoot: root, Now: p.Now})
	if err != nil {
		return nil, setUpFirst(err)
	}
	return c, nil
}

// withCatalog opens the catalog for one command.
func (p *program) withCatalog(fn func(*deploy.Catalog) error) (err error) {
	c, err := p.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return fn(c)
}

// current returns the head, and says what to do where there is none.
func current(ctx context.Context, c *deploy.Catalog) (*deploy.Revision, error) {
	r, err := c.Reader().Current(ctx)
	if catalog.FaultOf(err) == catalog.FaultEmpty {
		return nil, api.Errorf(api.CodeNotFound, "%w", err).WithHint("make the first one with: bailiwick catalog apply")
	}
	return r, err
}
