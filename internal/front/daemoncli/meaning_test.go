package daemoncli

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/telemetry"
)

// unlogged are the settings that the entry of a start leaves out, with the reason. Its
// digest of the file covers them.
func unlogged() map[string]string {
	return map[string]string{
		"File": "in the entry by itself", "Digest": "in the entry by itself", "former": "of the previous start",
		"Orchestrator.On":                 "changed by every other field of the section",
		"Anchors.Set":                     "changed by every other field of the section",
		"Retention.Rules.Checkouts.Count": "no key sets it",
		"Anchors.List.Name":               "part of the keys", "Notify.Name": "part of the keys",
	}
}

// full returns settings in which every list and map has an element.
func full() settings {
	return settings{
		Anchors:      anchorsSettings{Set: true, List: []anchorSettings{{Name: "disk", Repository: "/r", Bucket: "b"}}},
		Notify:       []notifySettings{{Name: "page", Command: []string{"/bin/x"}, Webhook: "https://h.example/x"}},
		Secrets:      secretsSettings{Env: []string{"A"}, Exec: map[api.Name]helperSettings{"deploy": {Command: []string{"/bin/y"}}}},
		Orchestrator: orchestratorSettings{On: true, Queues: map[api.Name]int{"big": 3}, Weights: map[api.Name]map[api.Principal]int{"big": {"local:ann": 2}}},
	}
}

// A setting that a start does not log could be changed without an auditor seeing what it
// was. Every field of the settings changes the logged meaning: a new one fails here.
func TestEverySettingIsLogged(t *testing.T) {
	checked := 0
	var walk func(path string, at func(*settings) reflect.Value)
	walk = func(path string, at func(*settings) reflect.Value) {
		if _, ok := unlogged()[path]; ok {
			return
		}
		s := full()
		v := at(&s)
		switch {
		case v.Type() == reflect.TypeFor[telemetry.Address]():
			a, err := telemetry.ParseListen("127.0.0.1:9464")
			if err != nil {
				t.Fatal(err)
			}
			v.Set(reflect.ValueOf(a))
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				name := v.Type().Field(i).Name
				walk(strings.TrimPrefix(path+"."+name, "."), func(s *settings) reflect.Value { return at(s).Field(i) })
			}
			return
		case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
			walk(path, func(s *settings) reflect.Value { return at(s).Index(0) })
			return
		case v.Kind() == reflect.Map: // another element
			key, of := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			if key.SetString("other"); of.Kind() == reflect.Struct {
				of.FieldByName("Command").Set(reflect.ValueOf([]string{"/bin/z"}))
			}
			if of.Kind() == reflect.Map { // of a queue that exists
				key, of = reflect.ValueOf(api.Name("big")), reflect.ValueOf(map[api.Principal]int{"local:ann": 5})
			}
			v.SetMapIndex(key, of)
		default:
			change(v)
		}
		checked++
		was := full()
		if maps.Equal(was.meaning("/s"), s.meaning("/s")) {
			t.Errorf("%s: a change of it is not in the entry of a start; add it to meaning, or to unlogged with the reason", path)
		}
	}
	walk("", func(s *settings) reflect.Value { return reflect.ValueOf(s).Elem() })
	if checked < 40 {
		t.Errorf("%d fields were checked", checked)
	}
}

// change gives v another value.
func change(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // SetString panics for the others, which fails the test
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + int64(5*time.Hour)) // no default
	case reflect.Slice:
		s := reflect.MakeSlice(v.Type(), 1, 1)
		s.Index(0).SetString("/changed")
		v.Set(s)
	default:
		v.SetString("https://changed.example")
	}
}

// The entry of a start has no value that may be a secret, whatever the file says.
func TestALoggedConfigurationHasNoSecret(t *testing.T) {
	s := full()
	const secret = "hunter2"
	s.Notify[0].Webhook = "https://hooks.example.com/" + secret
	s.Notify[0].Command = []string{"/bin/page", secret}
	s.Secrets.Exec["deploy"] = helperSettings{Command: []string{"/bin/pass", secret}}
	s.OAuth.JWKS = "https://keys.example.com/jwks?key=" + secret
	s.Anchors.List[0].URL = "https://tsa.example.com/tsr?key=" + secret
	b, err := json.Marshal(s.logged("/s"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), secret) {
		t.Errorf("%s", b)
	}
	s.Secrets.Vault.Namespace = secret // control: a setting that is no secret is there
	if got := s.logged("/s").Settings; !slices.Contains(got, "secrets.vault.namespace="+secret) {
		t.Errorf("control: the namespace is not in %q", got)
	}
}

// The largest configuration fits into an entry of the log.
func TestALargeConfigurationIsLogged(t *testing.T) {
	s := full()
	long := "/" + strings.Repeat("x", 4000)
	for i := range maxAnchors {
		s.Anchors.List = append(s.Anchors.List, anchorSettings{Name: strings.Repeat("n", 60) + string(rune('a'+i)), Path: long, CA: long, Roots: long, Credentials: long})
	}
	for i := range maxQueues {
		name := api.Name(strings.Repeat("q", 58) + string(rune('a'+i/26)) + string(rune('a'+i%26)))
		s.Orchestrator.Queues[name], s.Orchestrator.Weights[name] = i+1, map[api.Principal]int{api.Principal("local:" + long): 2}
	}
	for i := range maxHelpers {
		s.Secrets.Exec[api.Name(strings.Repeat("h", 58)+string(rune('a'+i/26))+string(rune('a'+i%26)))] = helperSettings{Command: []string{long}, Timeout: time.Second}
	}
	e := record.Entry{Kind: record.KindServiceStarted, Decision: record.NoDecided, At: time.Unix(1, 0).UTC(), Detail: record.ServiceStart{Config: s.logged("/s"), Mode: api.ModeSystem, Version: "1"}}
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := record.DecodeEntry(b); err != nil {
		t.Error(err)
	}
}

// memoryWorld returns a command tree on a state directory, and the path of a
// configuration file with that content.
func memoryWorld(t *testing.T, config string) (*tree, string) {
	t.Helper()
	dir := t.TempDir()
	tr := &tree{Config: Config{UID: os.Getuid(), Dirs: api.Dirs{State: filepath.Join(dir, "state"), Config: filepath.Join(dir, "config"), Data: filepath.Join(dir, "data")}}}
	for _, d := range []string{tr.Dirs.State, tr.Dirs.Config} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "named.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return tr, file
}

// startedWith makes the state remember a start with a configuration file.
func startedWith(t *testing.T, tr *tree, file string) settings {
	t.Helper()
	tr.config = file
	set, err := tr.settings()
	if err != nil {
		t.Fatal(err)
	}
	if err := newMemory(tr.Dirs.State, set, nil).write(tr.memoryPath()); err != nil {
		t.Fatal(err)
	}
	tr.config = ""
	return set
}

// A start without --config reads the file that the state was last started with, or is
// refused: without it, it would run without its anchors.
//
// proves R-A6
func TestAStateRemembersItsConfiguration(t *testing.T) {
	const anchored = "version: 1\nanchors:\n  - {name: disk, kind: file, path: /mnt/other/high-water}\n"
	for name, c := range map[string]struct {
		change func(t *testing.T, tr *tree, file string)
		want   string // in the error; "": the named file is read
	}{
		"unchanged": {func(*testing.T, *tree, string) {}, ""},
		"a default file appears": {func(t *testing.T, tr *tree, _ string) {
			if err := os.WriteFile(tr.Dirs.ServiceConfig(), []byte("version: 1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"deleted": {func(t *testing.T, _ *tree, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}, "was last started with"},
		"moved": {func(t *testing.T, _ *tree, file string) {
			if err := os.Rename(file, file+".old"); err != nil {
				t.Fatal(err)
			}
		}, "was last started with"},
		"a directory": {func(t *testing.T, _ *tree, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(file, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "not a regular file"},
		"writable by others": {func(t *testing.T, _ *tree, file string) {
			if err := os.Chmod(file, 0o666); err != nil { //nolint:gosec // G302: the attack
				t.Fatal(err)
			}
		}, "writable by other accounts"},
		"broken": {func(t *testing.T, _ *tree, file string) {
			if err := os.WriteFile(file, []byte("version: 2\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "this build reads version 1"},
		"the memory is damaged": {func(t *testing.T, tr *tree, _ string) {
			if err := os.WriteFile(tr.memoryPath(), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "memory of its configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			tr, file := memoryWorld(t, anchored)
			if set, err := tr.settings(); err != nil || set.File != "" {
				t.Fatalf("control: a state that no service has run on: %+v, %v", set, err)
			}
			startedWith(t, tr, file)
			c.change(t, tr, file)
			set, err := tr.settings()
			switch {
			case c.want == "" && (err != nil || set.File != file || len(set.Anchors.List) != 1 || len(set.former) != 0):
				t.Errorf("%+v, %v", set, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// An anchor of the previous start is compared although the configuration of this one
// lacks it, or has another place under its name.
//
// proves R-A6
func TestAStateRemembersItsAnchors(t *testing.T) {
	tr, file := memoryWorld(t, "version: 1\nanchors:\n  - {name: disk, kind: file, path: /mnt/a}\n  - {name: inside, kind: file, path: STATE/in}\n")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.ReplaceAll(string(text), "STATE", tr.Dirs.State))
	startedWith(t, tr, file)
	former := func() (places []string) {
		t.Helper()
		set, err := tr.settings()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range set.former {
			places = append(places, a.Path)
		}
		return places
	}
	if got := former(); got != nil {
		t.Errorf("control: nothing has changed: %q", got)
	}
	inside := tr.Dirs.State + "/in"
	write("version: 1\nanchors: []\n")
	if got := former(); !slices.Equal(got, []string{"/mnt/a", inside}) {
		t.Errorf("without anchors: %q", got)
	}
	write("version: 1\nanchors:\n  - {name: disk, kind: file, path: /mnt/b}\n")
	if got := former(); !slices.Equal(got, []string{"/mnt/a", inside}) {
		t.Errorf("in another place: %q", got)
	}
	// The state moves: an anchor inside it moves with it.
	moved := tr.Dirs.State + "2"
	if err := os.Rename(tr.Dirs.State, moved); err != nil {
		t.Fatal(err)
	}
	tr.Dirs.State = moved
	if got := former(); !slices.Equal(got, []string{"/mnt/a", moved + "/in"}) {
		t.Errorf("after a move: %q", got)
	}
}
