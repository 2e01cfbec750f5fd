package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/signin"
)

// serverVariable names the server that commands use, in place of the kept login.
const serverVariable = "BAILIWICK_SERVER"

// loginVerbs log a person in at a server on another machine.
type loginVerbs struct{ *tree }

func (t *tree) logins() signin.Store {
	return signin.Store{Path: filepath.Join(t.Dirs.Config, "logins.json"), Now: t.Now, Keyring: signin.Desktop(t.Lookup)}
}

// remote returns the server that commands use; empty: the service of this machine.
func (t *tree) remote() (string, error) {
	if t.socket != "" {
		if t.server != "" {
			return "", api.Errorf(api.CodeInvalid, "--socket and --server: give one")
		}
		return "", nil
	}
	url := t.server
	if url == "" {
		url, _ = t.Lookup(serverVariable)
	}
	if url == "" {
		return t.logins().Current()
	}
	return url, client.CheckURL(url)
}

func (t *loginVerbs) loginCommand(v *console.Verb) {
	var ca, token string
	v.Do(func(ctx context.Context, args []string) error {
		url, err := t.named(args)
		if err != nil {
			return err
		}
		r := signin.Request{URL: url, Show: func(address, code string) {
			fmt.Fprintf(t.Stderr, "Open %s\nand confirm the code %s\n", console.Line(address), console.Line(code))
		}}
		if ca != "" {
			b, err := readSmall(ca)
			if err != nil {
				return api.Errorf(api.CodeInvalid, "--ca: %w", err)
			}
			r.CA = string(b)
		}
		if token != "" {
			if r.Token, err = t.token(ctx, token); err != nil {
				return err
			}
		}
		logins := t.logins()
		who, err := logins.Login(ctx, r)
		if err != nil {
			return err
		}
		in, err := logins.Kept(url)
		if err != nil {
			return err
		}
		return t.Emit(struct {
			Server string `json:"server"`
			Kept   string `json:"kept"`
			api.Who
		}{url, in, who}, url, func() {
			fmt.Fprintf(t.Stdout, "logged in at %s as %s\n", url, who.Principal)
			fmt.Fprintf(t.Stdout, "kept in %s; forget it: bailiwick logout\n", in)
		})
	})
	v.Flag(&ca, "ca")
	v.Flag(&token, "token")
}

// named returns the server that an argument names, or the current one.
func (t *loginVerbs) named(args []string) (string, error) {
	if len(args) == 1 {
		return args[0], client.CheckURL(args[0])
	}
	url, err := t.remote()
	if err == nil && url == "" {
		err = api.Errorf(api.CodeInvalid, "no server is named, and none is logged in at").WithHint("run: bailiwick login https://HOST:PORT")
	}
	return url, err
}

const maxSmall = 1 << 20

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // G304: the flag names it
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(f, maxSmall+1))
	if err == nil && len(b) > maxSmall {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxSmall)
	}
	return b, err
}

// token reads a token from a file, or asks for it: never from the command line, which other
// accounts can see.
func (t *loginVerbs) token(ctx context.Context, from string) (token string, err error) {
	if from == "-" {
		token, err = console.Hidden(ctx, "Token: ", "token", "name a file: --token FILE")
	} else {
		var b []byte
		b, err = readSmall(from)
		token = string(b)
	}
	token = strings.TrimSpace(token)
	if err == nil {
		err = api.CheckToken(token)
	}
	if err != nil {
		return "", api.Errorf(api.CodeInvalid, "--token: %w", err)
	}
	return token, nil
}

func (t *loginVerbs) logoutCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, args []string) error {
		url, err := t.named(args)
		if err != nil {
			return err
		}
		ended, err := t.logins().Logout(ctx, url)
		if err != nil {
			return err
		}
		return t.Emit(map[string]any{"server": url, "ended": ended}, url, func() {
			fmt.Fprintf(t.Stdout, "logged out at %s\n", url)
			if !ended {
				fmt.Fprintf(t.Stderr, "the server did not answer, so the session there ends by itself; end it from elsewhere: bailiwick session end ID\n")
			}
		})
	})
}

func (t *loginVerbs) sessionListCommand(v *console.Verb) {
	listVerb(t.tree, v, func(ctx context.Context, c *client.Conn) ([]api.SessionInfo, error) {
		list, err := c.Sessions().List(ctx)
		if in, kept := t.logins().Kept(c.Server()); err == nil && kept == nil && in != "" && t.Format == "text" {
			fmt.Fprintf(t.Stderr, "the login of this account is kept in %s\n", in)
		}
		return list, err
	},
		func(s api.SessionInfo) string { return s.ID },
		"SESSION\tPRINCIPAL\tBY\tFROM\tOPENED\tUSED\tENDS", func(s api.SessionInfo) string {
			id := s.ID
			if s.Current {
				id += " (this)"
			}
			return strings.Join([]string{id, string(s.Principal), string(s.Via), console.Line(s.From), t.Time(s.OpenedAt), t.Time(s.UsedAt), t.Time(s.ExpiresAt)}, "\t")
		})
}

func (t *loginVerbs) sessionEndCommand(v *console.Verb) {
	t.connVerb(v, func(ctx context.Context, c *client.Conn, args []string) error {
		if err := c.Sessions().End(ctx, args[0]); err != nil {
			return err
		}
		return t.Emit(map[string]string{"session": args[0]}, args[0], func() { fmt.Fprintf(t.Stdout, "session %s ended\n", console.Line(args[0])) })
	})
}
