package cli

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
)

func (t *tree) tokenCommand() *cobra.Command {
	cmd := group("token", "Tokens by which clients say who they are")
	cmd.AddCommand(t.tokenCreateCommand(), t.tokenListCommand(), t.tokenRotateCommand(), t.tokenRevokeCommand())
	return cmd
}

// tokenFlags are those of the verbs that make a token.
type tokenFlags struct {
	decideFlags
	expires, out string
}

func (f *tokenFlags) add(cmd *cobra.Command) {
	f.decideFlags.add(cmd)
	cmd.Flags().StringVar(&f.expires, "expires", "90d", "how long it is good: days such as 90d, or a time such as 12h")
	cmd.Flags().StringVar(&f.out, "out", "", "write it to this new file, which only this account can read, instead of showing it")
}

// check refuses a file without a name, as from a variable that is not set: the
// token would be shown to whoever reads the output.
func (f *tokenFlags) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed("out") && f.out == "" {
		return api.Errorf(api.CodeInvalid, "--out: want the name of a new file").WithHint("leave it out to have the token shown")
	}
	return nil
}

func (t *tree) tokenCreateCommand() *cobra.Command {
	var f tokenFlags
	cmd := &cobra.Command{
		Use: "create PRINCIPAL", Short: "Make a token for a principal and show it once; the operator's key signs it", Args: cobra.ExactArgs(1),
		Long: `Make a token: whoever presents it is the principal. It is made here, from 256 random bits;
the service gets its hash only. It is shown once, on standard output, or written to the
file that --out names.`,
		Example: "  bailiwick token create agent:claude --out ~/.config/bailiwick/claude.token\n  bailiwick token create ci:nightly --expires 12h",
		RunE: func(cmd *cobra.Command, args []string) error {
			var p parser
			who := p.principal(args[0])
			if p.err != nil {
				return p.err
			}
			if err := f.check(cmd); err != nil {
				return err
			}
			if err := t.known(cmd.Context(), who); err != nil {
				return err
			}
			return t.makeToken(cmd.Context(), f, api.OperatorRecord{Verb: api.VerbTokenCreate, Principal: who})
		},
	}
	f.add(cmd)
	return cmd
}

func (t *tree) tokenRotateCommand() *cobra.Command {
	var f tokenFlags
	cmd := &cobra.Command{
		Use: "rotate ID", Short: "Make a token in the place of another, which ends at once; the operator's key signs it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			was, err := t.token(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return t.makeToken(cmd.Context(), f, api.OperatorRecord{Verb: api.VerbTokenRotate, Principal: was.Principal, Replaces: was.ID})
		},
	}
	f.add(cmd)
	return cmd
}

func (t *tree) tokenRevokeCommand() *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use: "revoke ID", Short: "End a token at once; the operator's key signs it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			was, err := t.token(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			d, err := t.decide(cmd.Context(), f, api.OperatorRecord{Verb: api.VerbTokenRevoke, Principal: was.Principal, Replaces: was.ID})
			if err != nil {
				return err
			}
			return t.printDecided(d, fmt.Sprintf("token %s of %s has ended. %s", was.ID, was.Principal, goesOn(was.Principal)))
		},
	}
	f.add(cmd)
	return cmd
}

// token returns what the service knows of a token.
func (t *tree) token(ctx context.Context, text string) (api.TokenInfo, error) {
	var id api.TokenID
	if err := id.UnmarshalText([]byte(text)); err != nil {
		if strings.HasPrefix(text, api.TokenPrefix) { // and does not print it
			err = errors.New("that is a token itself, which is secret: it is now in the shell's history. Want its id")
		}
		return api.TokenInfo{}, api.Errorf(api.CodeInvalid, "%w", err).WithHint("see: bailiwick token list")
	}
	c := t.conn()
	defer c.Close()
	list, err := c.Operator().Tokens(ctx)
	if err != nil {
		return api.TokenInfo{}, err
	}
	for _, info := range list {
		if info.ID == id {
			return info, nil
		}
	}
	return api.TokenInfo{}, api.Errorf(api.CodeNotFound, "there is no token %s", id).WithHint("see: bailiwick token list")
}

// newToken is a token that was just made, as -o json shows it.
type newToken struct {
	ID        api.TokenID   `json:"id"`
	Principal api.Principal `json:"principal"`
	ExpiresAt time.Time     `json:"expiresAt"`
	Token     string        `json:"token,omitempty"`
	File      string        `json:"file,omitempty"` // where it is instead
	Number    uint64        `json:"number"`
	Entry     uint64        `json:"auditEntry"`
}

// makeToken makes a token, has r signed with its hash, and hands the token out
// once it is in force.
func (t *tree) makeToken(ctx context.Context, f tokenFlags, r api.OperatorRecord) (err error) {
	good, err := span(f.expires)
	if err != nil {
		return err
	}
	if t.output == "name" && f.out == "" {
		return api.Errorf(api.CodeInvalid, "-o name shows the token's id and not the token").WithHint("name a file for the token with --out")
	}
	var random [32]byte
	_, _ = rand.Read(random[:]) // crypto/rand.Read never fails
	text := api.TokenText(random)
	r.Token = &api.TokenRecord{ID: newTokenID(), Hash: api.DigestOf([]byte(text)), ExpiresAt: t.Now().UTC().Truncate(time.Second).Add(good)}
	out, err := newSecretFile(f.out)
	if err != nil {
		return err
	}
	d, err := t.decide(ctx, f.decideFlags, r)
	if err != nil {
		return errors.Join(err, out.drop())
	}
	if err := out.keep(text + "\n"); err != nil {
		return api.Errorf(api.CodeInternal, "the token could not be written and is lost: %w", err).WithHint("end it: bailiwick token revoke %s", r.Token.ID)
	}
	return t.printToken(newToken{r.Token.ID, r.Principal, r.Token.ExpiresAt, text, f.out, d.receipt.Number, d.receipt.AuditEntry})
}

func (t *tree) printToken(n newToken) error {
	if n.File != "" {
		n.Token = ""
	}
	switch t.output {
	case "json", "jsonl":
		return t.printJSON(n)
	case "name":
		fmt.Fprintln(t.Stdout, n.ID)
		return nil
	}
	where := "it is shown this once, above"
	if n.File != "" {
		where = "it is in " + n.File
	} else {
		fmt.Fprintln(t.Stdout, n.Token)
	}
	fmt.Fprintf(t.Stderr, "token %s of %s, good until %s; %s (decision %d, log entry #%d)\n",
		n.ID, n.Principal, n.ExpiresAt.Format(timeFormat), plainLine(where), n.Number, n.Entry)
	return nil
}

func newTokenID() api.TokenID {
	var b [8]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails
	return api.TokenID("t-" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))[:12])
}

// secretFile is a new file that only this account can read; the zero value is
// none.
type secretFile struct{ f *os.File }

// newSecretFile makes the file before anything is signed, so that one that
// cannot be is found out first. It never overwrites.
func newSecretFile(path string) (secretFile, error) {
	if path == "" {
		return secretFile{}, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // G304: the user names the file
	if errors.Is(err, fs.ErrExist) {
		return secretFile{}, api.Errorf(api.CodeConflict, "--out %s: there is such a file", path).WithHint("nothing is ever overwritten; name another")
	}
	return secretFile{f}, err
}

func (s secretFile) keep(text string) error {
	if s.f == nil {
		return nil
	}
	_, err := s.f.WriteString(text)
	return errors.Join(err, s.f.Sync(), s.f.Close())
}

// drop removes the file, since nothing came of it.
func (s secretFile) drop() error {
	if s.f == nil {
		return nil
	}
	return errors.Join(s.f.Close(), os.Remove(s.f.Name()))
}

// span reads a time such as 90d or 12h30m.
func span(text string) (time.Duration, error) {
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
		return 0, api.Errorf(api.CodeInvalid, "--expires %q: want days such as 90d, or a time such as 12h, from a minute to %dd", text, int(api.MaxTokenLifetime.Hours()/24))
	}
	return total, nil
}

func (t *tree) tokenListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List all tokens that were ever made, and never one itself", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := t.conn()
			defer c.Close()
			list, err := c.Operator().Tokens(cmd.Context())
			if err != nil {
				return err
			}
			return printList(t, list, func(i api.TokenInfo) string { return string(i.ID) }, "ID\tPRINCIPAL\tSTATE\tCREATED\tENDS", func(i api.TokenInfo) string {
				ends := i.ExpiresAt
				if i.EndedAt != nil {
					ends = *i.EndedAt
				}
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", i.ID, i.Principal, i.State, i.CreatedAt.Format(timeFormat), ends.Format(timeFormat))
			})
		},
	}
}

// tokenText is a token in words.
func tokenText(i api.TokenInfo) string {
	switch i.State {
	case api.TokenActive:
		return fmt.Sprintf("%s active until %s", i.ID, i.ExpiresAt.Format(timeFormat))
	case api.TokenExpired:
		return fmt.Sprintf("%s expired at %s", i.ID, i.ExpiresAt.Format(timeFormat))
	case api.TokenRevoked, api.TokenRotated:
	}
	if i.EndedAt == nil {
		return fmt.Sprintf("%s %s", i.ID, i.State)
	}
	return fmt.Sprintf("%s %s at %s", i.ID, i.State, i.EndedAt.Format(timeFormat))
}
