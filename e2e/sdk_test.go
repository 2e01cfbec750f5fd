package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// outside is a program of another module: code that a person writes where the
// command line is not enough. It defines with one package, using its own key,
// and dispatches with another.
const outside = `package main

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/deploy"
)

type elsewhere struct{ key ed25519.PrivateKey }

func (s elsewhere) Public() []byte              { return s.key.Public().(ed25519.PublicKey) }
func (s elsewhere) KeyID() deploy.KeyID       { return deploy.IDOf(s.Public()) }
func (s elsewhere) Sign(_ context.Context, message []byte) ([]byte, error) {
	return ed25519.Sign(s.key, message), nil
}

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return v
}

func main() {
	ctx := context.Background()
	_, key, _ := ed25519.GenerateKey(nil)
	s := elsewhere{key}
	c := must(deploy.Create(deploy.Config{
		Dir: os.Args[1], Now: time.Now,
		TrustRoot: deploy.TrustRoot{V: 1, Threshold: 1, Keys: []deploy.Key{{ID: s.KeyID(), Name: "hsm", Public: s.Public()}}},
	}))
	plan := must(c.Plan(ctx, must(deploy.Load(ctx, os.Args[2])), deploy.Options{}))
	applied := must(c.Apply(ctx, plan, deploy.Approval{Author: "ann", Signers: []deploy.Signer{s}}))
	fmt.Println("revision", applied.Number)
	conn := client.New(client.Config{Socket: os.Args[3], UIDs: []int{must(strconv.Atoi(os.Args[4]))}})
	d := must(conn.Runtime().Dispatch(ctx, api.DispatchRequest{Subagent: "edit"}))
	fmt.Println("dispatch", d.State)
}
`

// A person's Go code can define and dispatch, each with a public package that
// does not depend on the other. The control: packages below internal/ cannot be
// imported.
//
// proves R-B8
func TestTheSDKIsForGoCodeOfHumans(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "true"})
	w.up()
	build := func(name, source string) (string, string, error) {
		dir := w.path(name)
		must(t, os.MkdirAll(dir, 0o755))
		top, err := filepath.Abs("..")
		must(t, err)
		mod, err := os.ReadFile("../go.mod")
		must(t, err)
		text := strings.Replace(string(mod), "module github.com/bailiwick-dev/bailiwick", "module example.invalid/outside", 1)
		text += "\nrequire github.com/bailiwick-dev/bailiwick v0.0.0\n\nreplace github.com/bailiwick-dev/bailiwick => " + top + "\n"
		sum, err := os.ReadFile("../go.sum")
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o644))
		must(t, os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o644))
		must(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o644))
		cmd := exec.Command("go", "build", "-o", name, ".")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod -buildvcs=false", "GOPROXY=off")
		out, err := cmd.CombinedOutput()
		return filepath.Join(dir, name), string(out), err
	}
	program, out, err := build("outside", outside)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	d := w.exec(program, w.path("elsewhere"), w.path(manifest), w.path("run/bailiwick/api.sock"), strconv.Itoa(w.serviceUID()))
	if d.status != 0 || !strings.Contains(d.stdout, "revision 1") || !strings.Contains(d.stdout, "dispatch accepted") {
		t.Errorf("it prints %s", d)
	}
	for _, change := range [][3]string{
		{`	"github.com/bailiwick-dev/bailiwick/deploy"`, `	_ "github.com/bailiwick-dev/bailiwick/internal/state/store"` + "\n" + `	"github.com/bailiwick-dev/bailiwick/deploy"`, "use of internal package"},
		{"conn.Runtime().Dispatch(", "conn.Runtime().Apply(", "no field or method Apply"},
		{"must(c.Apply(ctx, plan, ", "must(c.Dispatch(ctx, plan, ", "no field or method Dispatch"},
		{"conn.Runtime().Dispatch(", "conn.Runtime().Record(", "no field or method Record"},
	} {
		if _, out, err := build("wrong", strings.Replace(outside, change[0], change[1], 1)); err == nil || !strings.Contains(out, change[2]) {
			t.Errorf("with %s: %v: %s", change[1], err, out)
		}
	}
}
