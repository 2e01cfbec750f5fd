package installer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// Asker asks the person who sets up a machine.
type Asker struct {
	In  *bufio.Reader
	Out io.Writer
}

// errEnded means that the answers ended before the questions.
var errEnded = errors.New("the input ended; nothing was written")

// line asks for a line, which may be empty.
func (a Asker) line(format string, args ...any) (string, error) {
	if _, err := fmt.Fprintf(a.Out, format+": ", args...); err != nil {
		return "", err
	}
	text, err := a.In.ReadString('\n')
	if err != nil && text == "" {
		return "", errEnded
	}
	return strings.TrimSpace(text), nil
}

// say tells the person something, on a line of its own.
func (a Asker) say(format string, args ...any) { _, _ = fmt.Fprintf(a.Out, format+"\n", args...) }

// Answers asks for what setup needs to know.
func (a Asker) Answers() (all Answers, err error) {
	a.say("Who signs the catalog? Each person makes a key with: bailiwick key create")
	if all.Deploy, err = a.signers(false); err != nil {
		return all, err
	}
	a.say("Who signs decisions, such as a grant or a vote? Each makes a key with: bailiwick operator keygen")
	if all.Operators, err = a.signers(true); err != nil {
		return all, err
	}
	issuer, err := a.line("Identity provider of your team, https://HOST/PATH (empty: people log in with passkeys)")
	if err != nil {
		return all, err
	}
	if issuer != "" {
		client, err := a.line("Id that it knows this service by")
		if err != nil {
			return all, err
		}
		all.Login = []loginLine{{"issuer", issuer}, {"client", client}}
	}
	members, err := a.line("Accounts of this machine that write the catalog, with spaces between (empty: none)")
	all.Members = strings.Fields(members)
	if err != nil {
		return all, err
	}
	return all, all.Check()
}

// signers asks for keys and a threshold. It asks again for what it cannot read.
func (a Asker) signers(owned bool) (root seal.TrustRoot, err error) {
	root.V = 1
	for {
		path, err := a.line("File of a public key, FILE.pub (empty: no more)")
		if err != nil {
			return root, err
		}
		if path == "" && len(root.Keys) > 0 {
			break
		}
		k, err := ReadPublic(path)
		if err != nil {
			a.say("  %v", err)
			continue
		}
		if owned {
			who, err := a.line("Principal that holds it, such as human:alice or local:alice")
			if err != nil {
				return root, err
			}
			if k.Principal, err = api.ParsePrincipal(who); err != nil {
				a.say("  %v", err)
				continue
			}
		}
		a.say("  %s  %s %s", k.ID, k.Name, k.Principal)
		root.Keys = append(root.Keys, k)
	}
	most := len(root.Keys)
	for root.Threshold == 0 {
		text, err := a.line("How many of the %d must sign (empty: %d)", most, most/2+1)
		if err != nil {
			return root, err
		}
		n, err := strconv.Atoi(text)
		switch {
		case text == "":
			root.Threshold = most/2 + 1
		case err != nil || n < 1 || n > most:
			a.say("  want 1 to %d", most)
		default:
			root.Threshold = n
		}
	}
	return root, nil
}

// Confirm asks for a yes.
func (a Asker) Confirm(question string) error {
	text, err := a.line("%s (yes or no)", question)
	if err == nil && text != "yes" {
		err = errors.New("not confirmed; nothing was changed")
	}
	return err
}
