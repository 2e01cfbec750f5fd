package deploycli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	places "github.com/bailiwick-dev/bailiwick/internal/base/installation"
)

var update = flag.Bool("update", false, "write the golden files")

// TestMain lets the scripts run the test binary as the program.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"bailiwick-deploy": func() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		os.Exit(Run(ctx, Config{
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now, Dirs: places.Find(os.Getenv, os.Getuid()).Dirs, Env: os.Environ(),
			Login: "tester", Host: "here", Version: "1.0.0+test",
		}, os.Args[1:]))
	}, "make-record": func() {
		if err := makeRecord(os.Args[1]); err != nil {
			panic(err)
		}
	}})
}

// makeRecord prints an operator record of now with these members.
func makeRecord(members string) error {
	r := api.OperatorRecord{V: 1, Service: "ed25519:" + strings.Repeat("5a", 16), Number: 1, At: time.Now().UTC().Truncate(time.Second)}
	if err := json.Unmarshal([]byte(members), &r); err != nil {
		return err
	}
	b, err := canon.Marshal(r)
	if err == nil {
		_, err = os.Stdout.Write(b)
	}
	return err
}

// proves R-B9, R-C6
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			return os.Mkdir(filepath.Join(e.WorkDir, "home"), 0o700)
		},
	})
}

func examplePlan() *deploy.Plan {
	return &deploy.Plan{
		Manifest: "/srv/words/bailiwick.yaml", Project: "words", Derived: true,
		Base: deploy.Mark{Number: 3, Digest: "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"},
		CatalogDiff: api.CatalogDiff{
			Changes: []api.ArtifactChange{
				{Op: api.OpAdd, Ref: "env/model", Fields: []api.FieldChange{
					{Op: api.OpAdd, Field: "values.LOG_LEVEL", New: "info"},
					{Op: api.OpAdd, Field: "values.TRICK", New: "red \x1b[31m and \u202e back"},
				}},
				{Op: api.OpChange, Ref: "subagent/fixer", Fields: []api.FieldChange{
					{Op: api.OpChange, Field: "tier", Old: "reversible", New: "stateful"},
					{Op: api.OpAdd, Field: "limits.memory", New: "4GiB"},
					{Op: api.OpRemove, Field: "model", Old: "fast"},
					{Op: api.OpChange, Field: "system", Old: "One.\nTwo.\nThree.\n", New: "One.\n2.\nThree.\n"},
				}},
				{Op: api.OpChange, Ref: "role/adopted", Fields: []api.FieldChange{{Op: api.OpChange, Field: api.FieldProject, New: "words"}}},
				{Op: api.OpRemove, Ref: "role/old", Fields: []api.FieldChange{{Op: api.OpRemove, Field: "description", Old: "gone"}}},
			},
			Widens: []api.AuthorityChange{{Ref: "subagent/fixer", What: "higher tier: stateful, was reversible"}},
			Narrows: []api.AuthorityChange{
				{Ref: "grant/ann", What: "human:ann loses source app"},
				{Ref: "target/far", What: "directory no longer on PATH: /opt/\x1b[31mred"},
			},
		},
		Stay:   []api.Ref{"env/left"},
		Others: map[api.Name]int{"": 2, "garden": 1},
		Notes:  []string{"grant/x: names no target, so nothing can be dispatched with it"},
	}
}

func TestPlanText(t *testing.T) {
	for name, colour := range map[string]bool{"plan.txt": false, "plan-colour.txt": true} {
		o := &out{colour: colour}
		o.plan(examplePlan())
		golden(t, name, o.b.String())
	}
}

func TestColourNeverCarriesMeaningAlone(t *testing.T) {
	plain, coloured := &out{}, &out{colour: true}
	plain.plan(examplePlan())
	coloured.plan(examplePlan())
	stripped := coloured.b.String()
	for _, code := range []string{"0", "31", "32", "33", "1;35", "1;31"} {
		stripped = string(bytes.ReplaceAll([]byte(stripped), []byte("\x1b["+code+"m"), nil))
	}
	if stripped != plain.b.String() {
		t.Fatalf("without colours the plan differs:\n%s", stripped)
	}
	if bytes.ContainsRune([]byte(plain.b.String()), 0x1b) || bytes.ContainsRune([]byte(plain.b.String()), 0x202e) {
		t.Fatal("text of the manifest reaches the terminal unescaped")
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; if that is intended, run with -update. Got:\n%s", name, got)
	}
}
