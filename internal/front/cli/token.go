package cli

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// tokenVerbs are the verbs about tokens.
type tokenVerbs struct{ *operatorVerbs }

// tokenFlags are the flags of the verbs that create a token.
type tokenFlags struct {
	decideFlags
	expires, out string
}

func (f *tokenFlags) add(v *console.Verb) {
	f.decideFlags.add(v)
	f.expires = "90d"
	v.Flag(&f.expires, "expires")
	v.Flag(&f.out, "out")
}

// check refuses an empty --out, as from an unset variable: the token would be
// printed.
func (f *tokenFlags) check(v *console.Verb) error {
	if v.Flags().Changed("out") && f.out == "" {
		return api.Errorf(api.CodeInvalid, "--out: want the name of a new file").WithHint("omit it to print the token")
	}
	return nil
}

func (t *tokenVerbs) createCommand(v *console.Verb) {
	var f tokenFlags
	v.Do(func(ctx context.Context, args []string) error {
		var a console.Args
		p := console.Parse(&a, args[0], api.ParsePrincipal)
		if a.Err != nil {
			return a.Err
		}
		if err := f.check(v); err != nil {
			return err
		}
		if err := t.checkKnown(ctx, api.VerbTokenCreate, p); err != nil {
			return err
		}
		return t.create(ctx, f, api.OperatorRecord{Verb: api.VerbTokenCreate, Principal: p})
	})
	f.add(v)
}

func (t *tokenVerbs) rotateCommand(v *console.Verb) {
	var f tokenFlags
	t.endingVerb(v, &f, func(ctx context.Context, r api.OperatorRecord) error {
		r.Verb = api.VerbTokenRotate
		return t.create(ctx, f, r)
	})
	f.add(v)
}

func (t *tokenVerbs) revokeCommand(v *console.Verb) {
	var f tokenFlags
	t.endingVerb(v, &f, func(ctx context.Context, r api.OperatorRecord) error {
		r.Verb = api.VerbTokenRevoke
		return t.decided(ctx, f.decideFlags, r, fmt.Sprintf("token %s of %s is revoked. %s", r.Replaces, r.Principal, continues(r.Principal)))
	})
	f.decideFlags.add(v)
}

// endingVerb is a verb that ends a token. do gets a record that names it.
func (t *tokenVerbs) endingVerb(v *console.Verb, f *tokenFlags, do func(context.Context, api.OperatorRecord) error) {
	v.Do(func(ctx context.Context, args []string) error {
		if err := f.check(v); err != nil {
			return err
		}
		old, err := t.token(ctx, args[0])
		if err != nil {
			return err
		}
		return do(ctx, api.OperatorRecord{Principal: old.Principal, Replaces: old.ID})
	})
}

// token returns the token that an argument names.
func (t *tokenVerbs) token(ctx context.Context, text string) (info api.TokenInfo, err error) {
	var id api.TokenID
	if err := id.UnmarshalText([]byte(text)); err != nil {
		if strings.HasPrefix(text, api.TokenPrefix) { // must not be printed
			err = errors.New("this is a token, which is secret and now in the shell's history; want its id")
		}
		return info, api.Errorf(api.CodeInvalid, "%w", err).WithHint("see: bailiwick token list")
	}
	var list []api.TokenInfo
	err = t.withOperator(func(o client.Operator) error {
		list, err = o.Tokens(ctx)
		return err
	})
	if err != nil {
		return info, err
	}
	for _, info := range list {
		if info.ID == id {
			return info, nil
		}
	}
	return info, api.Errorf(api.CodeNotFound, "no such token %s", id).WithHint("see: bailiwick token list")
}

// newToken is the JSON answer of the verbs that create a token.
type newToken struct {
	ID        api.TokenID   `json:"id"`
	Principal api.Principal `json:"principal"`
	ExpiresAt time.Time     `json:"expiresAt"`
	Token     string        `json:"token,omitempty"`
	File      string        `json:"file,omitempty"` // that has the token instead
	Number    uint64        `json:"number"`
	Entry     uint64        `json:"auditEntry"`
}

// create makes a token, has r signed with its hash, and prints or writes the
// token once it is in force.
func (t *tokenVerbs) create(ctx context.Context, f tokenFlags, r api.OperatorRecord) (err error) {
	validity, err := parseExpires(f.expires)
	if err != nil {
		return err
	}
	if t.Format == "name" && f.out == "" {
		return api.Errorf(api.CodeInvalid, "-o name prints only the id of the token").WithHint("name a file for the token with --out")
	}
	var random [32]byte
	_, _ = rand.Read(random[:]) // crypto/rand.Read never fails
	text := api.TokenText(random)
	r.Token = &api.TokenRecord{ID: newTokenID(), Hash: api.DigestOf([]byte(text)), ExpiresAt: t.Now().UTC().Truncate(time.Second).Add(validity)}
	out, err := newSecretFile(f.out)
	if err != nil {
		return err
	}
	receipt, err := t.decide(ctx, f.decideFlags, r)
	if err != nil {
		return errors.Join(err, out.remove())
	}
	if err := out.write(text + "\n"); err != nil {
		return api.Errorf(api.CodeInternal, "the token could not be written and is lost: %w", err).WithHint("revoke it: bailiwick token revoke %s", r.Token.ID)
	}
	return t.printToken(newToken{r.Token.ID, r.Principal, r.Token.ExpiresAt, text, f.out, receipt.Number, receipt.AuditEntry})
}

func (t *tokenVerbs) printToken(n newToken) error {
	where := "printed only once, above"
	if n.File != "" {
		n.Token, where = "", "written to "+n.File
	}
	return t.Emit(n, string(n.ID), func() {
		if n.Token != "" {
			fmt.Fprintln(t.Stdout, n.Token)
		}
		fmt.Fprintf(t.Stderr, "token %s of %s, valid until %s; %s (decision %d, log entry #%d)\n",
			n.ID, n.Principal, t.Time(n.ExpiresAt), console.Line(where), n.Number, n.Entry)
	})
}

func newTokenID() api.TokenID {
	var b [8]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails
	return api.TokenID("t-" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))[:12])
}

// secretFile is a new file that only this account can read; the zero value is no
// file.
type secretFile struct{ f *os.File }

// newSecretFile creates the file before anything is signed, so that an error
// shows up first. It never overwrites a file.
func newSecretFile(path string) (secretFile, error) {
	if path == "" {
		return secretFile{}, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // G304: the user names the file
	if err != nil {
		return secretFile{}, console.AlreadyExists(err)
	}
	return secretFile{f}, nil
}

func (s secretFile) write(text string) error {
	if s.f == nil {
		return nil
	}
	_, err := s.f.WriteString(text)
	return errors.Join(err, s.f.Sync(), s.f.Close())
}

func (s secretFile) remove() error {
	if s.f == nil {
		return nil
	}
	return errors.Join(s.f.Close(), os.Remove(s.f.Name()))
}

// parseExpires parses a duration such as 90d or 12h30m.
func parseExpires(text string) (time.Duration, error) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		days, rest = "0", text
	}
	if rest == "" {
		rest = "0s"
	}
	n, err := strconv.ParseUint(days, 10, 16)
	d, restErr := time.ParseDuration(rest)
	total := time.Duration(n)*24*time.Hour + d //nolint:gosec // G115: 16 bits
	if err != nil || restErr != nil || d < 0 || total < time.Minute || total > api.MaxTokenLifetime {
		return 0, api.Errorf(api.CodeInvalid, "--expires %q: want days such as 90d, or a duration such as 12h, from a minute to %dd", text, int(api.MaxTokenLifetime.Hours()/24))
	}
	return total, nil
}

func (t *tokenVerbs) listCommand(v *console.Verb) {
	listVerb(t.tree, v, func(ctx context.Context, c *client.Conn) ([]api.TokenInfo, error) { return c.Operator().Tokens(ctx) },
		func(i api.TokenInfo) string { return string(i.ID) }, "ID\tPRINCIPAL\tSTATE\tCREATED\tEXPIRES", func(i api.TokenInfo) string {
			ends := i.ExpiresAt
			if i.EndedAt != nil {
				ends = *i.EndedAt
			}
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", i.ID, i.Principal, i.State, t.Ago(i.CreatedAt), t.Ago(ends))
		})
}

// tokenText describes the state of a token.
func (t *tree) tokenText(i api.TokenInfo) string {
	switch i.State {
	case api.TokenActive:
		return fmt.Sprintf("%s active until %s", i.ID, t.Time(i.ExpiresAt))
	case api.TokenExpired:
		return fmt.Sprintf("%s expired at %s", i.ID, t.Time(i.ExpiresAt))
	case api.TokenRevoked, api.TokenRotated:
	}
	if i.EndedAt == nil {
		return fmt.Sprintf("%s %s", i.ID, i.State)
	}
	return fmt.Sprintf("%s %s at %s", i.ID, i.State, t.Time(*i.EndedAt))
}
