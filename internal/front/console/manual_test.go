package console

import (
	"context"
	"strings"
	"testing"
	"time"
)

const testManual = `# prog

Try commands

The program that tests a manual.

- ` + "`--reason`" + `: why

## Work:

### thing

Change things

#### cut ID [SIZE]...

Cut a thing

Cut it,
  as it is.

- ` + "`-f, --force`" + `: without asking
- ` + "`--wait`" + `: wait this long

` + "```" + `
prog thing cut 1
prog thing cut 1 2 3 --force
` + "```" + `

#### mend

Mend a thing

` + "```" + `
prog thing mend
` + "```" + `
`

func testVerbs(did *string) Verbs {
	return Verbs{
		"thing cut": func(v *Verb) {
			force, wait, reason := false, time.Minute, ""
			v.Flag(&force, "force")
			v.Flag(&wait, "wait")
			v.Flag(&reason, "reason")
			v.Do(func(_ context.Context, args []string) error {
				*did = strings.Join(args, " ") + " " + wait.String() + " " + reason
				return nil
			})
		},
		"thing mend": func(v *Verb) { v.Do(func(context.Context, []string) error { return nil }) },
	}
}

func TestAManualMakesTheCommands(t *testing.T) {
	did := ""
	root := ParseManual(testManual).Command(testVerbs(&did))
	root.SetArgs([]string{"thing", "cut", "1", "2", "-f", "--reason", "dull"})
	if err := root.Execute(); err != nil || did != "1 2 1m0s dull" {
		t.Fatalf("%v, did %q", err, did)
	}
	cut, _, _ := root.Find([]string{"thing", "cut"})
	if cut.Short != "Cut a thing" || cut.Long != "Cut it,\n  as it is." || !strings.HasSuffix(cut.Example, "\n  prog thing cut 1 2 3 --force") {
		t.Errorf("the text of a verb is %q, %q, %q", cut.Short, cut.Long, cut.Example)
	}
	if f := cut.Flags().Lookup("force"); f == nil || f.Usage != "without asking" || f.Shorthand != "f" {
		t.Errorf("the text of a flag is %+v", f)
	}
	if thing := cut.Parent(); thing.GroupID != "Work:" || thing.Example != "  prog thing cut 1\n  prog thing mend" {
		t.Errorf("a noun is in group %q and has the examples %q", thing.GroupID, thing.Example)
	}
	if err := cut.ValidateArgs(nil); err == nil || !strings.Contains(err.Error(), "argument ID is missing") {
		t.Errorf("without its argument: %v", err)
	}
	mend, _, _ := root.Find([]string{"thing", "mend"})
	if err := mend.ValidateArgs([]string{"1"}); err == nil || !strings.Contains(err.Error(), `unexpected argument "1"`) {
		t.Errorf("with an argument too many: %v", err)
	}
}

func TestAManualAndItsVerbsAgree(t *testing.T) {
	for name, change := range map[string]func(Verbs) Verbs{
		"a verb without a text":  func(v Verbs) Verbs { v["thing burn"] = v["thing mend"]; return v },
		"a text without a verb":  func(v Verbs) Verbs { delete(v, "thing mend"); return v },
		"a flag without a text":  func(v Verbs) Verbs { v["thing mend"] = func(v *Verb) { v.Flag(new(bool), "dry") }; return v },
		"a text without a flag":  func(v Verbs) Verbs { v["thing cut"] = func(*Verb) {}; return v },
		"a flag of another type": func(v Verbs) Verbs { v["thing mend"] = func(v *Verb) { v.Flag(new(float64), "reason") }; return v },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is accepted", name)
				}
			}()
			ParseManual(testManual).Command(change(testVerbs(new(string))))
		}()
	}
}
