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
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

const manifestName = "bailiwick.yaml"

// planFlags are the flags of the verbs that read a manifest.
type planFlags struct {
	file    string
	opt     deploy.Options
	secrets []string
	pin     bool
}

func (f *planFlags) add(v *console.Verb, ceiling **api.Tier) {
	f.file = manifestName
	v.Flag(&f.file, "file")
	v.Flag(&f.opt.Prune, "prune")
	v.Flag(&f.opt.SourcesElsewhere, "sources-elsewhere")
	v.Flag(&f.opt.Connect, "connect")
	v.Flag(&f.secrets, "secret")
	v.Flags().Func("caller-ceiling", "", func(s string) error {
		*ceiling = new(api.Tier)
		return (*ceiling).UnmarshalText([]byte(s))
	})
	_ = v.Flags().MarkHidden("caller-ceiling") // bailiwick passes it; the flag exists
}

// catalogVerbs are the verbs that plan, apply and sign changes of the catalog.
type catalogVerbs struct {
	*program
	secrets record.Secrets // that servers of tools are asked with
	ceiling *api.Tier      // of the user, as bailiwick asked the service; nil if unknown
}

func (p *catalogVerbs) planCommand(v *console.Verb) {
	var f planFlags
	var outFile string
	var exitCode bool
	v.Do(func(ctx context.Context, _ []string) error {
		return p.withCatalog(p.define, func(c *deploy.Catalog) error {
			plan, err := p.plan(ctx, c, f)
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
	})
	f.add(v, &p.ceiling)
	v.Flag(&f.pin, "pin")
	v.Flag(&outFile, "out")
	p.formatFlag(v)
	v.Flag(&exitCode, "exit-code")
}

func (p *catalogVerbs) plan(ctx context.Context, c *deploy.Catalog, f planFlags) (*deploy.Plan, error) {
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

func (p *catalogVerbs) planOnce(ctx context.Context, c *deploy.Catalog, f planFlags) (*deploy.Plan, error) {
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

func (p *catalogVerbs) showPlan(plan *deploy.Plan) error {
	return p.answer(plan, func(o *out) { o.plan(plan) }, each(plan.Changes, func(c api.ArtifactChange) string { return string(c.Ref) })...)
}

func (p *catalogVerbs) writePlan(plan *deploy.Plan, path string) error {
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

func (p *catalogVerbs) applyCommand(v *console.Verb) {
	var f planFlags
	var reason string
	var replace bool
	v.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && (cmd.Flags().Changed("prune") || cmd.Flags().Changed("file") || cmd.Flags().Changed("sources-elsewhere") || cmd.Flags().Changed("connect")) {
			return api.Errorf(api.CodeInvalid, "apply: --file, --prune, --connect and --sources-elsewhere do not go with a plan file, which has them")
		}
		return p.withCatalog(p.define, func(c *deploy.Catalog) error {
			plan, err := p.planToApply(cmd.Context(), c, args, f)
			if err != nil {
				return err
			}
			return p.apply(cmd.Context(), c, plan, reason, replace)
		})
	}
	f.add(v, &p.ceiling)
	v.Flag(&reason, "reason")
	v.Flag(&replace, "replace-proposal")
	p.formatFlag(v)
}

func (p *catalogVerbs) planToApply(ctx context.Context, c *deploy.Catalog, args []string, f planFlags) (*deploy.Plan, error) {
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
func (p *catalogVerbs) apply(ctx context.Context, c *deploy.Catalog, plan *deploy.Plan, reason string, replace bool) error {
	o := &out{}
	o.plan(plan)
	p.print("%s", strings.TrimSuffix(o.b.String(), "\n"))
	a := deploy.Approval{Author: p.author(), Reason: reason, ReplaceProposal: replace}
	done := &deploy.Applied{Unchanged: true, Number: plan.Base.Number, Digest: plan.Base.Digest, Signers: []seal.KeyID{}, Needed: c.Reader().TrustRoot().Threshold}
	if !plan.Empty() {
		var err error
		if a.Signers, err = p.keys.signers(ctx, deployKey(p.Dirs), "", ""); err != nil {
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

func (p *catalogVerbs) moveCommand(v *console.Verb) {
	var to, reason string
	var replace bool
	v.Do(func(ctx context.Context, args []string) error {
		if to == "" {
			return api.Errorf(api.CodeInvalid, "--to is missing: the project that gets them")
		}
		refs := make([]api.Ref, len(args))
		for i, a := range args {
			refs[i] = api.Ref(a)
		}
		return p.withCatalog(p.define, func(c *deploy.Catalog) error {
			plan, err := c.Move(ctx, refs, api.Name(to))
			if err != nil {
				return err
			}
			return p.apply(ctx, c, plan, reason, replace)
		})
	})
	v.Flag(&to, "to")
	v.Flag(&reason, "reason")
	v.Flag(&replace, "replace-proposal")
	p.formatFlag(v)
}

func (p *catalogVerbs) author() string {
	if p.Host == "" {
		return p.Login
	}
	return p.Login + "@" + p.Host
}

func (p *catalogVerbs) applied(a *deploy.Applied) error {
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

func (p *catalogVerbs) signCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, args []string) error {
		return p.withCatalog(p.define, func(c *deploy.Catalog) error { return p.sign(ctx, c, args) })
	})
	p.formatFlag(v)
}

func (p *catalogVerbs) sign(ctx context.Context, c *deploy.Catalog, args []string) error {
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
	signers, err := p.keys.signers(ctx, deployKey(p.Dirs), "", "")
	if err != nil {
		return err
	}
	done, err := c.Sign(ctx, r.Digest(), signers...)
	if err != nil {
		return err
	}
	return p.applied(done)
}
