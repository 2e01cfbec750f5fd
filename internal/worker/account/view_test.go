package account

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// proves R-S1
func TestOnlyTheServicesFilesAreMapped(t *testing.T) {
	const service, person = 4242, 4343
	own, others := dir(t, service, "a", "mine"), dir(t, person, "b", "a person's")
	links := t.TempDir()
	link := filepath.Join(links, "repository")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		path Path
		as   ID
		says string // the error; empty: it is opened
	}{
		{"the service's", Path{At: own}, Self, ""},
		{"a person's", Path{At: others}, Nobody, ""},
		{"a person's, to write", Path{At: others, Write: true}, 0, "belongs to uid 4343"},
		{"a person's, for agents", Path{At: others, Agent: true}, 0, "belongs to uid 4343"},
		{"a person's, to trust", Path{At: others, Trusted: true}, 0, "belongs to uid 4343"},
		{"root's, to trust", Path{At: "/usr", Trusted: true}, Nobody, ""},
		{"the service's, as a source", Path{At: own, Links: true}, Self, ""},
		{"a link of a person to the service's", Path{At: link, Links: true}, Nobody, ""},
		{"given too", Path{At: own, From: opened(t, own)}, Self, ""},
		{"given as another", Path{At: own, From: opened(t, others)}, 0, "not the directory whose descriptor was given"},
		{"a link that is not followed", Path{At: link}, 0, "a symbolic link"},
		{"below a link", Path{At: link + "/a"}, 0, "a symbolic link"},
		{"missing", Path{At: own + "/c"}, 0, "no such file"},
	} {
		opened, err := Open(service, []Path{c.path})
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.path.At) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil || len(opened) != 1 || opened[0].As != c.as {
			t.Errorf("%s: %+v, %v, want id %d", c.name, opened, err, c.as)
		}
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	}
	opened, err := Open(service, []Path{{At: own, Write: true, Agent: true}, {At: own + "/c", Optional: true}})
	if err != nil || len(opened) != 2 || !opened[0].Write || opened[1].Write || opened[1].As != Agent {
		t.Errorf("%+v, %v", opened, err)
	}
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
}

// A unit of systemd has a mount namespace of its own, so its descriptors can be compared but not mounted from.
func TestADirectoryOfAUnitIsShown(t *testing.T) {
	const service = 4242
	own := dir(t, service, "a", "mine")
	theirs := make(chan *os.File)
	go func() {
		runtime.LockOSThread() // and the thread ends
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			t.Error(err)
		}
		f, err := os.Open(own)
		if err != nil {
			t.Error(err)
		}
		theirs <- f
	}()
	f := <-theirs
	defer f.Close()
	clone := func(f *os.File) error {
		fd, err := unix.OpenTree(int(f.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
		return errors.Join(err, unix.Close(fd))
	}
	if err := clone(f); !errors.Is(err, unix.EINVAL) {
		t.Fatalf("the control: a mount was cloned from another namespace: %v", err)
	}
	opened, err := Open(service, []Path{{At: own, From: f, Write: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(clone(opened[0].From), opened.Close()); err != nil {
		t.Error(err)
	}
}
