package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	statusEvery = 30 * time.Second
	slowest     = 12
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // of build output
	Elapsed                       float64
	Time                          time.Time
}

type took struct {
	name    string
	seconds float64
	end     time.Time
}

// report turns test events into progress lines and a summary.
type report struct {
	mu      sync.Mutex
	out     io.Writer
	total   int
	done    int
	running map[string]time.Time // packages by their start
	output  map[string][]string  // of tests that have not passed, by package and test
	tests   []took
	pkgs    []took
	failed  []string
	used    func() int64 // bytes of the tests' files in memory; nil on disk
	peak    int64        // the largest that used returned
}

func newReport(out io.Writer, packages []string) *report {
	return &report{out: out, total: len(packages), running: map[string]time.Time{}, output: map[string][]string{}}
}

// follow reads events until r ends.
func (r *report) follow(in io.Reader) {
	ended := make(chan struct{})
	defer close(ended)
	go r.tick(ended)
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				e = event{Action: "build-output", Output: string(line)}
			}
			r.take(e)
		}
		if err != nil {
			return
		}
	}
}

// tick prints which packages still run while nothing finishes.
func (r *report) tick(ended <-chan struct{}) {
	every := time.NewTicker(statusEvery)
	defer every.Stop()
	measure := time.NewTicker(time.Second)
	defer measure.Stop()
	for {
		select {
		case <-ended:
			return
		case <-measure.C:
			if r.used != nil {
				n := r.used()
				r.mu.Lock()
				r.peak = max(r.peak, n)
				r.mu.Unlock()
			}
		case <-every.C:
			r.mu.Lock()
			fmt.Fprintf(r.out, "...\t%s\n", r.remaining())
			r.mu.Unlock()
		}
	}
}

func (r *report) remaining() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(r.running)) {
		names = append(names, fmt.Sprintf("%s %.0fs", short(name), time.Since(r.running[name]).Seconds()))
	}
	if len(names) == 0 {
		names = []string{"none, compiling"}
	}
	return fmt.Sprintf("%d of %d packages done; running: %s", r.done, r.total, strings.Join(names, ", "))
}

func short(pkg string) string {
	_, name, ok := strings.Cut(pkg, "/bailiwick/")
	if !ok {
		return pkg
	}
	return name
}

func (r *report) take(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := e.Package + " " + e.Test
	switch e.Action {
	case "start":
		r.running[e.Package] = time.Now()
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.output[key] = append(r.output[key], e.Output)
	case "pass", "skip", "fail":
		if e.Test == "" {
			r.finish(e)
			return
		}
		if e.Action == "fail" {
			r.failed = append(r.failed, short(e.Package)+" "+e.Test)
			fmt.Fprint(r.out, strings.Join(r.output[key], ""))
		}
		delete(r.output, key)
		if !strings.Contains(e.Test, "/") {
			r.tests = append(r.tests, took{short(e.Package) + " " + e.Test, e.Elapsed, e.Time})
		}
	}
}

// finish prints a package's last line as go test does, then what remains.
func (r *report) finish(e event) {
	delete(r.running, e.Package)
	r.done++
	r.pkgs = append(r.pkgs, took{short(e.Package), e.Elapsed, e.Time})
	if e.Action == "fail" { // a panic or a timeout: the tests that were running have no end of their own
		for _, key := range slices.Sorted(maps.Keys(r.output)) {
			if strings.HasPrefix(key, e.Package+" ") {
				fmt.Fprint(r.out, strings.Join(r.output[key], ""))
			}
		}
		r.failed = append(r.failed, short(e.Package))
	} else {
		lines := r.output[e.Package+" "]
		if len(lines) > 0 {
			fmt.Fprintf(r.out, "%s\t%s\n", strings.TrimRight(lines[len(lines)-1], "\n"), r.remaining())
		}
	}
	maps.DeleteFunc(r.output, func(key string, _ []string) bool { return strings.HasPrefix(key, e.Package+" ") })
}

// at names the tests that ran at a time.
func (r *report) at(t time.Time) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, test := range r.tests {
		start := test.end.Add(-time.Duration(test.seconds * float64(time.Second)))
		if !t.Before(start) && !t.After(test.end) {
			names = append(names, test.name)
		}
	}
	return names
}

// summary prints the slowest packages and tests, and what failed.
func (r *report) summary() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, list := range []struct {
		what string
		took []took
	}{{"packages", r.pkgs}, {"tests", r.tests}} {
		slices.SortFunc(list.took, func(a, b took) int { return cmp.Compare(b.seconds, a.seconds) })
		fmt.Fprintf(r.out, "slowest %s:", list.what)
		for _, t := range list.took[:min(slowest, len(list.took))] {
			fmt.Fprintf(r.out, " %s %.1fs;", t.name, t.seconds)
		}
		fmt.Fprintln(r.out)
	}
	if r.used != nil {
		fmt.Fprintf(r.out, "the tests' files were in memory, at most %d MiB\n", r.peak>>20)
	}
	for _, name := range r.failed {
		fmt.Fprintln(r.out, "FAILED", name)
	}
}
