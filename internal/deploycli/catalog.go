package deploycli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

const manifestName = "bailiwick.yaml"

func (p *program) catalogCommand() *cobra.Command {
	cmd := group("catalog", "Plan, sign and inspect the catalog")
	cmd.AddCommand(
		p.planCommand(), p.applyCommand(), p.signCommand(), p.listCommand(), p.showCommand(),
		p.verifyCommand(), p.historyCommand(), p.diffCommand(),
	)
	return cmd
}

func (p *program) planCommand() *cobra.Command {
	var file, outFile string
	var opt deploy.Options
	var exitCode bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what applying the manifest would change, and what would widen authority",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains([]string{"", "text", "json", "name"}, p.format) {
				p.format, outFile = "text", p.format
			}
			return p.withCatalog(func(c *deploy.Catalog) error {
				plan, err := p.plan(cmd.Context(), c, file, opt)
				if err != nil {
					return err
				}
				if err := p.showPlan(plan); err != nil {
					return err
				}
				if err := p.writePlan(plan, outFile); err != nil {
					return err
				}
				if exitCode && !plan.Empty() {
					return errChanges
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", manifestName, "the manifest")
	cmd.Flags().StringVar(&outFile, "out", "", "write the plan to this file, for apply")
	cmd.Flags().StringVarP(&p.format, "output", "o", "text", "text, json or name; anything else is a file to write the plan to")
	cmd.Flags().BoolVar(&opt.Prune, "prune", false, "remove what the manifest does not declare")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 2 when there are changes")
	return cmd
}

func (p *program) plan(ctx context.Context, c *deploy.Catalog, file string, opt deploy.Options) (*deploy.Plan, error) {
	m, err := deploy.Load(ctx, file)
	if err != nil {
		if os.IsNotExist(err) || strings.Contains(err.Error(), "no such file") {
			return nil, api.Errorf(api.CodeNotFound, "%w", err).WithHint("name the manifest with -f, or make a first one with: bailiwick init")
		}
		return nil, err
	}
	return c.Plan(ctx, m, opt)
}

func (p *program) showPlan(plan *deploy.Plan) error {
	return p.answer(plan, func(o *out) { o.plan(plan) }, func(o *out) {
		for _, c := range plan.Changes {
			o.line(string(c.Ref))
		}
	})
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
	p.say("Wrote the plan to %s. Apply it with: bailiwick catalog apply %s", path, path)
	return nil
}

func (p *program) applyCommand() *cobra.Command {
	var file, reason string
	var opt deploy.Options
	var replace bool
	cmd := &cobra.Command{
		Use:   "apply [PLANFILE]",
		Short: "Sign and publish what the manifest says, as one revision",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (cmd.Flags().Changed("prune") || cmd.Flags().Changed("file")) {
				return api.Errorf(api.CodeInvalid, "apply: a plan file says already which manifest, and whether to prune")
			}
			return p.withCatalog(func(c *deploy.Catalog) error {
				plan, err := p.planToApply(cmd.Context(), c, args, file, opt)
				if err != nil {
					return err
				}
				return p.apply(cmd.Context(), c, plan, reason, replace)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", manifestName, "the manifest")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the history")
	cmd.Flags().BoolVar(&opt.Prune, "prune", false, "remove what the manifest does not declare")
	cmd.Flags().BoolVar(&replace, "replace-proposal", false, "drop a proposal that waits for signatures")
	p.formatFlag(cmd, "text")
	return cmd
}

func (p *program) planToApply(ctx context.Context, c *deploy.Catalog, args []string, file string, opt deploy.Options) (*deploy.Plan, error) {
	if len(args) == 0 {
		return p.plan(ctx, c, file, opt)
	}
	f, err := os.Open(args[0])
	if err != nil {
		return nil, fmt.Errorf("plan file: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, 32<<20))
	if err != nil {
		return nil, fmt.Errorf("plan file: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("plan file: %w", err)
	}
	return c.PlanAgain(ctx, b)
}

// apply shows the plan before it asks for a passphrase: giving it is the
// consent.
func (p *program) apply(ctx context.Context, c *deploy.Catalog, plan *deploy.Plan, reason string, replace bool) error {
	o := &out{}
	o.plan(plan)
	p.say("%s", strings.TrimSuffix(o.b.String(), "\n"))
	a := deploy.Approval{Author: p.author(), Reason: reason, ReplaceProposal: replace}
	if plan.Empty() {
		return p.applied(&deploy.Applied{Unchanged: true, Number: plan.Base.Number, Digest: plan.Base.Digest, Signers: []seal.KeyID{}, Needed: c.Reader().TrustRoot().Threshold})
	}
	signers, err := p.signers(ctx)
	if err != nil {
		return err
	}
	a.Signers = signers
	done, err := c.Apply(ctx, plan, a)
	if err != nil {
		return err
	}
	return p.applied(done)
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
	}, func(o *out) { o.line(string(a.Digest)) })
}

func (p *program) signCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sign [DIGEST]",
		Short: "Sign the proposal that waits for more signatures",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withCatalog(func(c *deploy.Catalog) error { return p.sign(cmd.Context(), c, args) })
		},
	}
	p.formatFlag(cmd, "text")
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
	p.say("%s", strings.TrimSuffix(o.b.String(), "\n"))
	signers, err := p.signers(ctx)
	if err != nil {
		return err
	}
	done, err := c.Sign(ctx, r.Digest(), signers...)
	if err != nil {
		return err
	}
	return p.applied(done)
}
