package daemoncli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/base/hostcommand"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/front/telemetry"
	"github.com/bailiwick-dev/bailiwick/internal/state/notify"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

const (
	maxReceivers  = 8
	maxArguments  = 32
	notifyTimeout = 10 * time.Second // of one exchange with a webhook
)

// notifySettings configures one receiver of notifications: a command or a webhook.
type notifySettings struct {
	Name       string
	On         []api.WaitingKind
	Command    []string // nil: Webhook is set
	Webhook    string   // an https URL
	Secret, CA string   // files
}

// notifiable are the kinds that a receiver can ask for.
func notifiable() []string {
	return []string{string(api.WaitingQuestion), string(api.WaitingApproval), string(api.WaitingFailed)}
}

func (r *settingsReader) notify(n *yaml.Node) {
	seen := map[string]bool{}
	r.Items(n, "notify", func(i int, item *yaml.Node) {
		what := fmt.Sprintf("notify[%d]", i)
		if i == maxReceivers {
			r.At(item, "notify: more than %d", maxReceivers)
		}
		if i >= maxReceivers {
			return
		}
		before := r.Len()
		s := r.receiver(item, what)
		if r.Len() > before {
			return
		}
		if seen[s.Name] {
			r.At(item, "%s.name: duplicate name %q", what, s.Name)
		}
		seen[s.Name] = true
		r.s.Notify = append(r.s.Notify, s)
	})
}

// receiver reads one receiver.
func (r *settingsReader) receiver(n *yaml.Node, what string) (s notifySettings) {
	before := r.Len()
	r.Fields(n, what, map[string]func(*yaml.Node){
		"name": func(n *yaml.Node) { s.Name = r.Line(n, what+".name") },
		"on": func(n *yaml.Node) {
			r.Items(n, what+".on", func(i int, item *yaml.Node) {
				if kind := api.WaitingKind(r.choice(item, fmt.Sprintf("%s.on[%d]", what, i), notifiable()...)); kind != "" {
					s.On = append(s.On, kind)
				}
			})
		},
		"command": func(n *yaml.Node) { s.Command = r.argv(n, what+".command") },
		"webhook": func(n *yaml.Node) { s.Webhook = r.Line(n, what+".webhook") },
		"secret":  func(n *yaml.Node) { s.Secret = r.path(n, what+".secret") },
		"ca":      func(n *yaml.Node) { s.CA = r.path(n, what+".ca") },
	})
	if r.Len() > before {
		return s
	}
	if !receipt.ValidName(s.Name) {
		r.At(n, "%s.name: %q: want 1 to 63 of a-z, 0-9 and -", what, strictyaml.Clip(s.Name))
	}
	switch on := keyOf(n, "on"); {
	case on != nil && s.On == nil:
		r.At(on, "%s.on: empty: name one of %s, or leave it out for all", what, strings.Join(notifiable(), ", "))
	case on == nil:
		for _, kind := range notifiable() {
			s.On = append(s.On, api.WaitingKind(kind))
		}
	}
	switch command, webhook := keyOf(n, "command"), keyOf(n, "webhook"); {
	case (command == nil) == (webhook == nil):
		r.At(n, "%s: write one of command and webhook", what)
	case command != nil:
		if s.Secret != "" || s.CA != "" {
			r.At(command, "%s: secret and ca are of a webhook", what)
		}
	default:
		r.webhook(n, &s, what)
	}
	return s
}

// argv reads a program, which is not empty, with its arguments.
func (r *settingsReader) argv(n *yaml.Node, what string) (argv []string) {
	before := r.Len()
	r.Items(n, what, func(i int, item *yaml.Node) {
		argv = append(argv, r.Line(item, fmt.Sprintf("%s[%d]", what, i)))
	})
	if r.Len() == before && (len(argv) == 0 || len(argv) > maxArguments || !filepath.IsAbs(argv[0]) || filepath.Clean(argv[0]) != argv[0]) {
		r.At(n, "%s: want [/absolute/path, ARGUMENT, ...], at most %d; no shell reads it", what, maxArguments)
	}
	return argv
}

func (r *settingsReader) webhook(n *yaml.Node, s *notifySettings, what string) {
	if _, err := dialFor(s.Webhook); err != nil {
		// The path of such a URL is often a secret.
		r.At(n, "%s.webhook: %v", what, strings.ReplaceAll(err.Error(), "/absolute/path or ", ""))
	}
	if s.Secret == "" {
		r.At(n, "%s: the key \"secret\" is missing: the file with the key that signs its messages", what)
	}
}

// receiverOpener opens receivers. It connects to none and runs nothing, but their files
// must be valid.
type receiverOpener struct {
	files   ownFiles
	env     []string // of a command
	version string   // of the service
	now     func() time.Time
}

func (t *tree) receiverOpener() receiverOpener {
	return receiverOpener{t.files(), t.programEnv(), t.Version, t.Now}
}

func (o receiverOpener) all(list []notifySettings) (subs []notify.Subscription, err error) {
	for i := range list {
		s := &list[i]
		sub := notify.Subscription{Name: s.Name, On: s.On}
		if s.Command != nil {
			sub.Receiver, err = o.command(s)
		} else {
			sub.Receiver, err = o.webhook(s)
		}
		if err != nil {
			return nil, fmt.Errorf("notify %q: %w", s.Name, err)
		}
		subs = append(subs, sub)
	}
	return subs, nil
}

func (o receiverOpener) command(s *notifySettings) (notify.Receiver, error) {
	check := func() error { return o.files.program(s.Command[0]) }
	return notify.NewCommand(hostcommand.Command{Argv: s.Command, Env: o.env, Check: check}), check()
}

// programEnv is all of the environment of a configured program.
func (t *tree) programEnv() []string {
	home, _ := t.Lookup("HOME")
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=" + home}
}

func (o receiverOpener) webhook(s *notifySettings) (notify.Receiver, error) {
	cfg := egress.ClientConfig{Timeout: notifyTimeout}
	var err error
	if cfg.Dial, err = dialFor(s.Webhook); err != nil {
		return nil, err
	}
	if cfg.Roots, err = o.files.pool(s.CA); err != nil {
		return nil, err
	}
	secret := func() ([]byte, error) {
		b, err := o.files.readSecret(s.Secret)
		if err != nil {
			return nil, err
		}
		key, err := notify.ParseSecret(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Secret, err)
		}
		return key, nil
	}
	if _, err := secret(); err != nil {
		return nil, err
	}
	return notify.NewWebhook(notify.WebhookConfig{URL: s.Webhook, Client: egress.Client(cfg), Secret: secret, Version: o.version, Now: o.now})
}

// openNotify starts to tell the receivers. It needs the dispatches and the runs.
func (s *service) openNotify(ctx context.Context) error {
	subs, err := s.t.receiverOpener().all(s.set.Notify)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "%w", err).WithHint("fix the receiver in %s", s.set.File)
	}
	is, err := s.log.Load().Status(ctx)
	if err != nil || len(subs) == 0 {
		return err
	}
	s.notify, err = notify.Open(ctx, notify.Config{
		Store: s.store, Ledger: s.ledger, Log: is.Origin, Subscriptions: subs, Now: s.t.Now, Logger: s.logger,
		Dispatch: func(ctx context.Context, id api.DispatchID) (api.Dispatch, error) {
			d, err := s.dispatch.Describe(ctx, s.me, id, 0)
			if err == nil {
				err = s.archive.LimitAnswer(ctx, &d)
			}
			return d, err
		},
		Approval: s.approvals.Get,
		Run: func(ctx context.Context, id api.RunID) (api.Run, error) {
			return s.archive.Describe(ctx, s.me, id, "", 1)
		},
	})
	return err
}

// notifyStatus returns the status of the receivers.
func notifyStatus(k *notify.Keeper) []api.NotifyStatus {
	if k == nil {
		return nil
	}
	return k.Status()
}

// notifyState returns the state of the receivers for metrics.
func notifyState(k *notify.Keeper) (list []telemetry.Receiver) {
	for _, r := range notifyStatus(k) {
		list = append(list, telemetry.Receiver{Name: r.Name, Kind: r.Kind, Pending: r.Pending, Delivered: r.Delivered, Dropped: r.Dropped, OK: r.Error == ""})
	}
	return list
}

// notifyChecks are doctor's checks of the configured receivers.
func (t *doctor) notifyChecks(s settings, err error) (out []check) {
	if err != nil {
		return nil // reported by configCheck
	}
	for i := range s.Notify {
		n := &s.Notify[i]
		c := check{name: "notify " + n.Name}
		subs, err := t.receiverOpener().all([]notifySettings{*n})
		if err != nil {
			c.found, c.fix, c.invalid = err.Error(), "fix the receiver; the service does not start with it", true
		} else {
			on := make([]string, len(n.On))
			for i, kind := range n.On {
				on[i] = string(kind)
			}
			slices.Sort(on)
			c.ok, c.found = true, fmt.Sprintf("%s %s, on %s", subs[0].Kind(), subs[0].Place(), strings.Join(on, " and "))
		}
		out = append(out, c)
	}
	return out
}

// runningNotify are doctor's checks of the receivers of the running service.
func runningNotify(s *api.ServiceStatus) (out []check) {
	for i := range s.Notify {
		r := &s.Notify[i]
		if r.Error != "" {
			out = append(out, check{name: "service notify", advice: true, found: r.Name + " fails: " + r.Error, fix: "messages are kept for a day and sent again; see: bailiwick status"})
		}
	}
	return out
}
