package launchsetting

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

func read(t *testing.T, text string) (Settings, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "launch.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Read(path)
}

func TestSettingsAreRead(t *testing.T) {
	s, err := Read(filepath.Join(t.TempDir(), "none"))
	if err != nil || !reflect.DeepEqual(s, Default()) {
		t.Errorf("no file: %+v, %v", s, err)
	}
	s, err = read(t, "version: 1\nuids: {first: 2000000, blocks: 7}\ngrace: 1h\nworker: {memory: 512MiB, cpu: 0.5}\ntoolHost: {processes: 99}\ndisk: 50MiB\nunheld: [cpu, memory]\n")
	want := Default()
	want.First, want.Blocks, want.Grace, want.Disk = 2_000_000, 7, time.Hour, 50<<20
	want.Held = []string{"pids"}
	want.Worker.Memory, want.Worker.CPU, want.ToolHost.Processes = api.Bytes(512<<20), 0.5, 99
	if err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, %v, want %+v", s, err, want)
	}
}

// What is not known or cannot be held refuses the start. The control is TestSettingsAreRead.
func TestUnknownSettingsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"version: 1\nworkers: {memory: 1GiB}\n":                 "workers",
		"version: 1\nworker: {disk: 1GiB}\n":                    "disk",
		"version: 1\nworker: {memory: 1MiB}\n":                  "at least 64MiB",
		"version: 1\ntoolHost: {processes: 2}\n":                "32 processes",
		"version: 1\ntoolHost: {cpu: -1}\n":                     "above 0",
		"version: 1\ndisk: 1\n":                                 "at least 64KiB",
		"version: 1\ndisk: fast\n":                              "disk",
		"version: 2\n":                                          "version",
		"disk: 1MiB\n":                                          "version",
		"version: 1\nuids: {first: 5}\n":                        "want a first uid",
		"version: 1\nuids: {first: 2000000, blocks: 900000000}": "blocks of 3",
		"version: 1\nunheld: [io]\n":                            "some of memory, pids and cpu",
		"version: 1\nunheld: [cpu, cpu]\n":                      "each once",
		"version: 1\ngrace: 1000h\n":                            "grace",
	} {
		if s, err := read(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %q", text, s, err, want)
		}
	}
}
