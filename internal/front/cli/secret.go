package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// secretVerbs are the verbs about the values of secrets.
type secretVerbs struct{ *operatorVerbs }

func (t *secretVerbs) setCommand(v *console.Verb) {
	var f decideFlags
	v.Do(func(ctx context.Context, args []string) error {
		var a console.Args
		name := console.Parse(&a, args[0], api.ParseName)
		if a.Err != nil {
			return a.Err
		}
		return t.setSecret(ctx, f, name)
	})
	f.add(v)
}

func (t *secretVerbs) setSecret(ctx context.Context, f decideFlags, name api.Name) error {
	list, err := t.secrets(ctx, false)
	if err != nil {
		return err
	}
	if err := t.checkSetting(list, name); err != nil {
		return err
	}
	value, err := t.secretValue(ctx, name)
	if err != nil {
		return err
	}
	for _, s := range list.Secrets {
		for _, use := range s.Uses {
			if err := api.CheckSecretUse(use, value); s.Ref == "file:"+string(name) && err != nil {
				return api.Errorf(api.CodeInvalid, "secret %q: %w", s.Name, err).WithHint("nothing was set")
			}
		}
	}
	content, err := encrypted(list.Recipient, value)
	if err != nil {
		return err
	}
	r := api.OperatorRecord{Verb: api.VerbSecretSet, Secret: name, Content: api.DigestOf(content)}
	receipt, err := t.decideContent(ctx, f, r, content)
	if err != nil {
		return err
	}
	return t.printReceipt(receipt, fmt.Sprintf("Secret %s was set. It counts for dispatches that start from now on.", name))
}

// checkSetting refuses a name whose value is elsewhere, before anyone types it.
func (t *secretVerbs) checkSetting(list api.SecretList, name api.Name) error {
	ref, used := "file:"+string(name), false
	for _, s := range list.Secrets {
		used = used || s.Ref == ref && len(s.UsedBy) > 0
		if s.Name == name && s.Ref != ref {
			return api.Errorf(api.CodeInvalid, "secret %q has the reference %s in the catalog", name, s.Ref).
				WithHint("%s", settingHint(s.Ref))
		}
	}
	if !used {
		fmt.Fprintf(t.Stderr, "note: nothing in the catalog uses %s yet\n", ref)
	}
	return nil
}

func settingHint(ref string) string {
	if file, ok := strings.CutPrefix(ref, "file:"); ok {
		return "run: bailiwick secret set " + file
	}
	return "set the value there, or change the reference in bailiwick.yaml"
}

// secretValue returns the value that the user gives.
func (t *secretVerbs) secretValue(ctx context.Context, name api.Name) (string, error) {
	var value string
	if t.Interactive {
		var err error
		if value, err = console.Hidden(ctx, fmt.Sprintf("Value of the secret %s (not shown): ", name), "value", "run this from a terminal, or give the value on standard input"); err != nil {
			return "", err
		}
	} else {
		b, err := io.ReadAll(io.LimitReader(t.Stdin, record.MaxSecret+3))
		if err != nil {
			return "", fmt.Errorf("standard input: %w", err)
		}
		value = record.TrimLine(string(b))
	}
	if err := record.CheckSecret(value); err != nil {
		return "", api.Errorf(api.CodeInvalid, "secret %q: %w", name, err).WithHint("nothing was set")
	}
	return value, nil
}

// encrypted returns a value encrypted to an age recipient.
func encrypted(recipient, value string) ([]byte, error) {
	to, err := age.ParseX25519Recipient(recipient)
	if err != nil {
		return nil, fmt.Errorf("key of the service: %w", err)
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, to)
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(w, value)
	err = errors.Join(err, w.Close()) // which writes the end
	return out.Bytes(), err
}

func (t *secretVerbs) secrets(ctx context.Context, check bool) (list api.SecretList, err error) {
	err = t.withOperator(func(o client.Operator) error {
		list, err = o.Secrets(ctx, check)
		return err
	})
	return list, err
}

func (t *secretVerbs) removeCommand(v *console.Verb) {
	var f decideFlags
	v.Do(func(ctx context.Context, args []string) error {
		var a console.Args
		name := console.Parse(&a, args[0], api.ParseName)
		if a.Err != nil {
			return a.Err
		}
		list, err := t.secrets(ctx, false)
		if err != nil {
			return err
		}
		set := func(s api.SecretInfo) bool { return s.Ref == "file:"+string(name) && s.SetAt != nil }
		if !slices.ContainsFunc(list.Secrets, set) {
			return api.Errorf(api.CodeNotFound, "secret %q is not set", name).WithHint("see: bailiwick secret list")
		}
		return t.decided(ctx, f, api.OperatorRecord{Verb: api.VerbSecretRemove, Secret: name}, fmt.Sprintf("Secret %s was removed.", name))
	})
	f.add(v)
}

func (t *secretVerbs) listCommand(v *console.Verb) {
	listVerb(t.tree, v, func(ctx context.Context, c *client.Conn) ([]api.SecretInfo, error) {
		list, err := c.Operator().Secrets(ctx, false)
		return list.Secrets, err
	}, func(s api.SecretInfo) string { return string(s.Name) }, "NAME\tREFERENCE\tSET\tUSED BY", func(s api.SecretInfo) string {
		set := "-"
		switch {
		case s.SetAt != nil:
			set = t.Ago(*s.SetAt)
		case strings.HasPrefix(s.Ref, "file:"):
			set = "no"
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s", s.Name, s.Ref, set, console.Joined(s.UsedBy, ", ", "-"))
	})
}

func (t *secretVerbs) checkCommand(v *console.Verb) {
	t.operatorVerb(v, func(ctx context.Context, o client.Operator, _ []string) error {
		list, err := o.Secrets(ctx, true)
		if err != nil {
			return err
		}
		if err := console.List(&t.Output, list.Secrets, func(s api.SecretInfo) string { return string(s.Name) }, "NAME\tREFERENCE\tVALUE", func(s api.SecretInfo) string {
			value := "ok"
			if s.Problem != "" {
				value = console.Cell(strings.TrimPrefix(s.Problem, s.Ref+": "))
			}
			return fmt.Sprintf("%s\t%s\t%s", s.Name, s.Ref, value)
		}); err != nil {
			return err
		}
		if slices.ContainsFunc(list.Secrets, func(s api.SecretInfo) bool { return s.Problem != "" && len(s.UsedBy) > 0 }) {
			return console.Exit{Status: 1}
		}
		return nil
	})
}
