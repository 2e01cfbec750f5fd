package deploycli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

const manifestName = "bailiwick.yaml"

func (p *program) catalogCommand() *cobra.Command {
	return console.Noun("catalog", "Plan, sign and inspect the catalog",
		console.Group{Title: "Change:", Commands: []*cobra.Command{p.planCommand(), p.applyCommand(), p.signCommand(), p.moveCommand()}},
		console.Group{Title: "Look:", Commands: []*cobra.Command{p.listCommand(), p.showCommand(), p.historyCommand(), p.diffCommand(), p.verifyCommand()}})
}

// planFlags are the flags of the verbs that read a manifest.
type planFlags struct {
	file    string
	opt     deploy.Options
	secrets []string
	pin     bool
}

func (f *planFlags) add(cmd *cobra.Command, ceiling **api.Tier) {
	cmd.Flags().StringVarP(&f.file, "file", "f", manifestName, "the manifest")
	cmd.Flags().BoolVar(&f.opt.Prune, "prune", false, "remove artifacts of the project that the manifest does not declare")
	cmd.Flags().BoolVar(&f.opt.SourcesElsewhere, "sources-elsewhere", false, "do not look for the repositories of sources: the service runs on another machine")
	cmd.Flags().BoolVar(&f.opt.Connect, "connect", false, "let new and changed servers of tools use their egress and connect while they are asked for their tools")
	cmd.Flags().StringArrayVar(&f.secrets, "secret", nil, "ask servers of tools with the value of this secret: NAME asks on the terminal, NAME=@FILE reads a file; may be repeated")
	cmd.Flags().Func("caller-ceiling", "", func(s string) error {
		*ceiling = new(api.Tier)
		return (*ceiling).UnmarshalText([]byte(s))
	})
	_ = cmd.Flags().MarkHidden("caller-ceiling") // bailiwick passes it; the flag exists
}

func (p *program) planCommand() *cobra.Command {
	var f planFlags
	var outFile string
	var exitCode bool
	cmd := &cobra.Command{
		Use: "plan", Short: "Show what applying the manifest would change, and what would widen authority", Args: cobra.NoArgs,
		Example: console.Examples("bailiwick catalog plan --out plan.json", "bailiwick catalog plan -f team.yaml --exit-code"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withCatalog(func(c *deploy.Catalog) error {
				plan, err := p.plan(cmd.Context(), c, f)
				if err != nil {
					return err
				}
				if err := p.showPlan(plan); err != nil {
					return err
				}
				if err := p.writePlan(plan, outFile); err != nil {
					return err
				}
				p.nextAfterPlan(plan, f, outFile)
				if exitCode && !plan.Empty() {
					return console.Exit{Status: 2}
				}
				return nil
			})
		},
	}
	f.add(cmd, &p.ceiling)
	cmd.Flags().BoolVar(&f.pin, "pin", false, "write the pins of the definitions of tools, which it shows, into the manifest")
	cmd.Flags().StringVar(&outFile, "out", "", "write the plan to this file, for apply")
	p.formatFlag(cmd)
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with status 2 if there are changes")
	return cmd
}

func (p *program) plan(ctx context.Context, c *deploy.Catalog, f planFlags) (*deploy.Plan, error) {
	if err := p.readSecrets(ctx, f.secrets); err != nil {
		return nil, err
	}
	plan, err := p.planOnce(ctx, c, f)
	if errors.Is(err, errPinned) { // what the servers say now is compared with what they said then
		f.pin = false
		plan, err = p.planOnce(ctx, c, f)
	}
	return plan, err
}

// errPinned says that the manifest has new pins.
var errPinned = errors.New("new pins")

func (p *program) planOnce(ctx context.Context, c *deploy.Catalog, f planFlags) (*deploy.Plan, error) {
	m, err := deploy.Load(ctx, f.file)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, api.Errorf(api.CodeNotFound, "%w", err).WithHint("name the manifest with -f, or create one with: bailiwick init")
		}
		return nil, err
	}
	plan, err := c.Plan(ctx, m, f.opt)
	if unpinned, ok := errors.AsType[*deploy.UnpinnedError](err); ok {
		err = p.pinned(ctx, m, unpinned, f.pin)
		if err == nil {
			err = errPinned
		}
	}
	return plan, err
}

func (p *program) showPlan(plan *deploy.Plan) error {
	return p.answer(plan, func(o *out) { o.plan(plan) }, each(plan.Changes, func(c api.ArtifactChange) string { return string(c.Ref) })...)
}

func (p *program) writePlan(plan *deploy.Plan, path string) error {
	if path == "" {
		return nil
	}
	b, err := plan.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return fmt.Errorf("plan file: %w", err)
	}
	p.print("Wrote the plan to %s.", visible(path))
	return nil
}

func (p *program) applyCommand() *cobra.Command {
	var f planFlags
	var reason string
	var replace bool
	cmd := &cobra.Command{
		Use: "apply [PLANFILE]", Short: "Sign and publish the manifest as a new revision", Args: cobra.MaximumNArgs(1),
		Example: console.Examples("bailiwick catalog apply --reason 'new reviewer'", "bailiwick catalog apply plan.json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (cmd.Flags().Changed("prune") || cmd.Flags().Changed("file") || cmd.Flags().Changed("sources-elsewhere") || cmd.Flags().Changed("connect")) {
				return api.Errorf(api.CodeInvalid, "apply: --file, --prune, --connect and --sources-elsewhere do not go with a plan file, which has them")
			}
			return p.withCatalog(func(c *deploy.Catalog) error {
				plan, err := p.planToApply(cmd.Context(), c, args, f)
				if err != nil {
					return err
				}
				return p.apply(cmd.Context(), c, plan, reason, replace)
			})
		},
	}
	f.add(cmd, &p.ceiling)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the history")
	cmd.Flags().BoolVar(&replace, "replace-proposal", false, "discard a proposal that waits for signatures")
	p.formatFlag(cmd)
	return cmd
}

func (p *program) planToApply(ctx context.Context, c *deploy.Catalog, args []string, f planFlags) (*deploy.Plan, error) {
	if len(args) == 0 {
		return p.plan(ctx, c, f)
	}
	if err := p.readSecrets(ctx, f.secrets); err != nil {
		return nil, err
	}
	file, err := os.Open(args[0])
	if err != nil {
		return nil, fmt.Errorf("plan file: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(file, 32<<20))
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("plan file: %w", err)
	}
	return c.PlanAgain(ctx, b)
}

// apply shows the plan before it asks for a passphrase: typing it is the consent.
func (p *program) apply(ctx context.Context, c *deploy.Catalog, plan *deploy.Plan, reason string, replace bool) error {
	o := &out{}
	o.plan(plan)
	p.print("%s", strings.TrimSuffix(o.b.String(), "\n"))
	a := deploy.Approval{Author: p.author(), Reason: reason, ReplaceProposal: replace}
	done := &deploy.Applied{Unchanged: true, Number: plan.Base.Number, Digest: plan.Base.Digest, Signers: []seal.KeyID{}, Needed: c.Reader().TrustRoot().Threshold}
	if !plan.Empty() {
		var err error
		if a.Signers, err = p.signers(ctx, p.deployKey(), "", ""); err != nil {
			return err
		}
		if done, err = c.Apply(ctx, plan, a); err != nil {
			return err
		}
	}
	if err := p.applied(done); err != nil || done.Proposal {
		return err
	}
	p.nextAfterApply(plan)
	return nil
}

func (p *program) moveCommand() *cobra.Command {
	var to, reason string
	var replace bool
	cmd := &cobra.Command{
		Use: "move KIND/NAME... --to PROJECT", Short: "Sign and publish that artifacts belong to another project", Args: cobra.MinimumNArgs(1),
		Long: `Give artifacts to a project, whose manifest may change and remove them from then on. Nothing
else about them changes. Take them out of the manifest of the project that had them.

To rename a project, move all that it has:
bailiwick catalog move $(bailiwick catalog list --project OLD -o name) --to NEW`,
		Example: console.Examples("bailiwick catalog move subagent/greet --to garden", "bailiwick catalog move target/local role/transform --to platform --reason 'shared by all'"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return api.Errorf(api.CodeInvalid, "--to is missing: the project that gets them")
			}
			refs := make([]api.Ref, len(args))
			for i, a := range args {
				refs[i] = api.Ref(a)
			}
			return p.withCatalog(func(c *deploy.Catalog) error {
				plan, err := c.Move(cmd.Context(), refs, api.Name(to))
				if err != nil {
					return err
				}
				return p.apply(cmd.Context(), c, plan, reason, replace)
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the project that gets them")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the history")
	cmd.Flags().BoolVar(&replace, "replace-proposal", false, "discard a proposal that waits for signatures")
	p.formatFlag(cmd)
	return cmd
}

func (p *program) author() string {
	if p.Host == "" {
		return p.Login
	}
	return p.Login + "@" + p.Host
}

func (p *program) applied(a *deploy.Applied) error {
	return p.answer(a, func(o *out) {
		switch {
		case a.Unchanged:
			o.line("Nothing to apply.")
		case a.Proposal:
			o.linef("Proposed revision %d (%s), signed by %d of %d.", a.Number, a.Digest.Short(), len(a.Signers), a.Needed)
			o.line("It takes effect when others have signed it with: bailiwick catalog sign")
		default:
			o.linef("Applied revision %d (%s), signed by %d of %d.", a.Number, a.Digest.Short(), len(a.Signers), a.Needed)
		}
	}, string(a.Digest))
}

func (p *program) signCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sign [DIGEST]", Short: "Sign the proposal that waits for more signatures", Args: cobra.MaximumNArgs(1),
		Example: console.Examples("bailiwick catalog sign", "bailiwick catalog sign --key ann.key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withCatalog(func(c *deploy.Catalog) error { return p.sign(cmd.Context(), c, args) })
		},
	}
	p.formatFlag(cmd)
	return cmd
}

func (p *program) sign(ctx context.Context, c *deploy.Catalog, args []string) error {
	waiting, err := c.Proposal(ctx)
	if err != nil {
		return err
	}
	if waiting == nil {
		return api.Errorf(api.CodeNotFound, "no proposal waits for a signature")
	}
	r := waiting.Revision
	if len(args) == 1 && args[0] != string(r.Digest()) {
		return api.Errorf(api.CodeConflict, "the proposal that waits is %s, not %.80s", r.Digest(), args[0])
	}
	o := &out{}
	o.linef("Proposal: revision %d (%s) by %s, signed by %d of %d.", r.Number(), r.Digest(), visible(r.Author()), len(r.Signers()), c.Reader().TrustRoot().Threshold)
	if r.Reason() != "" {
		o.linef("Reason: %s", visible(r.Reason()))
	}
	o.line("")
	o.changes(waiting.Changes)
	o.widens(waiting.Widens)
	o.narrows(waiting.Narrows)
	p.print("%s", strings.TrimSuffix(o.b.String(), "\n"))
	signers, err := p.signers(ctx, p.deployKey(), "", "")
	if err != nil {
		return err
	}
	done, err := c.Sign(ctx, r.Digest(), signers...)
	if err != nil {
		return err
	}
	return p.applied(done)
}
