package console

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLongAnswersGoThroughThePagerOnATerminalOnly(t *testing.T) {
	pager := filepath.Join(t.TempDir(), "pager")
	if err := os.WriteFile(pager, []byte("#!/bin/sh\necho paged $*\nexec cat\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"PAGER=" + pager + " -x"}
	for name, c := range map[string]struct {
		o     Output
		paged bool
	}{
		"a terminal":             {Output{Screen: true, Format: "text", Env: env}, true},
		"its own variable":       {Output{Screen: true, Format: "text", Env: []string{"PAGER=false", "BAILIWICK_PAGER=" + pager + " -x"}}, true},
		"no terminal":            {Output{Format: "text", Env: env}, false},
		"JSON":                   {Output{Screen: true, Format: "json", Env: env}, false},
		"a flag":                 {Output{Screen: true, Format: "text", Env: env, NoPager: true}, false},
		"an empty variable":      {Output{Screen: true, Format: "text", Env: append(env, "BAILIWICK_PAGER=")}, false},
		"cat":                    {Output{Screen: true, Format: "text", Env: []string{"PAGER=cat"}}, false},
		"a dumb terminal":        {Output{Screen: true, Format: "text", Env: append(env, "TERM=dumb")}, false},
		"a pager that is absent": {Output{Screen: true, Format: "text", Env: []string{"PAGER=/no/such/pager"}}, false},
	} {
		var out bytes.Buffer
		c.o.Stdout, c.o.Stderr = &out, io.Discard
		err := c.o.Page(func() error {
			_, err := fmt.Fprintln(c.o.Stdout, "answer")
			return err
		})
		want := "answer\n"
		if c.paged {
			want = "paged -x\nanswer\n"
		}
		if err != nil || out.String() != want || c.o.Stdout != io.Writer(&out) {
			t.Errorf("%s: %q, %v; want %q", name, &out, err, want)
		}
	}
}

func TestLeavingThePagerIsNoError(t *testing.T) {
	o := Output{Screen: true, Format: "text", Stdout: io.Discard, Stderr: io.Discard, Env: []string{"PAGER=true"}}
	err := o.Page(func() error {
		for range 1 << 12 {
			if _, err := io.WriteString(o.Stdout, strings.Repeat("x", 1<<10)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("%v", err)
	}
	if err := o.Page(func() error { return os.ErrInvalid }); err == nil {
		t.Error("control: an error of the command is lost")
	}
}

func TestTablesFitTheTerminal(t *testing.T) {
	list := []string{"short", strings.Repeat("long ", 20)}
	for width, longest := range map[int]int{40: 40, 0: 106} {
		var out bytes.Buffer
		o := Output{Screen: true, Format: "text", Stdout: &out, Width: func() int { return width }}
		if err := List(&o, list, func(s string) string { return s }, "NAME\tX", func(s string) string { return s + "\tx" }); err != nil {
			t.Fatal(err)
		}
		most := 0
		for line := range strings.Lines(out.String()) {
			most = max(most, len(strings.TrimRight(line, "\n")))
		}
		if most > longest || width == 0 && most < 100 {
			t.Errorf("width %d: a row of %d columns:\n%s", width, most, &out)
		}
	}
}
