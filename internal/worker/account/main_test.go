package account

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The program of these tests is the test binary, which then does one thing and prints what came of it.

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if do, ok := acts()[os.Args[1]]; ok {
			if err := do(os.Args[2:]); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// nextBlock hands out blocks that no other test process of this machine uses at the same time.
var nextBlock atomic.Int64 //nolint:gochecknoglobals // tests run in parallel

func block(t *testing.T) Block {
	t.Helper()
	b := Block{First: 0x60000000 + os.Getpid()%0x10000*0x300 + int(nextBlock.Add(Size))}
	t.Cleanup(func() {
		if err := b.Kill(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// run starts the act of a name and returns what it printed and its exit code.
func run(t *testing.T, p Program, act string, args ...string) (string, int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Path, p.Args, p.File = self, append([]string{act}, args...), append([]*os.File{nil, w, w}, p.File...)
	process, err := Start(p)
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 0, 1<<16)
	for buffer := make([]byte, 4096); ; {
		n, err := r.Read(buffer)
		text = append(text, buffer[:n]...)
		if err != nil {
			break
		}
	}
	state, err := process.Wait()
	if err := errors.Join(err, process.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
	return string(text), state.ExitCode()
}

func opened(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// dir makes a directory with a file of the text, both of uid.
func dir(t *testing.T, uid int, name, text string) string {
	t.Helper()
	d := t.TempDir()
	if err := errors.Join(os.Chmod(d, 0o700), os.WriteFile(filepath.Join(d, name), []byte(text), 0o600), os.Chown(filepath.Join(d, name), uid, uid), os.Chown(d, uid, uid)); err != nil {
		t.Fatal(err)
	}
	return d
}

// acts is what the program of a test does.
func acts() map[string]func(args []string) error {
	return map[string]func(args []string) error{
		"say": say, "groups": ownGroups, "escape": escape, "fork": fork, "attack": attack, "take": take,
		"read": func(args []string) error {
			return each(args, func(p string) error { _, err := os.ReadFile(p); return err })
		},
		"write": func(args []string) error {
			return each(args, func(p string) error { return os.WriteFile(p, []byte("w"), 0o644) })
		},
		"signal": func(args []string) error { return each(args, func(p string) error { return unix.Kill(number(p), 0) }) },
	}
}

func number(s string) int { n, _ := strconv.Atoi(s); return n }

// each prints of each argument what do returned for it, and fails if one failed.
func each(args []string, do func(string) error) error {
	failed := 0
	for _, a := range args {
		if err := do(a); err != nil {
			failed++
			fmt.Printf("%s: %v\n", a, err)
		} else {
			fmt.Printf("%s: done\n", a)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d failed", failed, len(args))
	}
	return nil
}

// facts are what a program says of itself.
type facts struct {
	UID, GID, Session, PID int
	Groups                 []int
	Env, Root, Descriptors []string
	NoNewPrivs             bool
	Map                    string
}

func say([]string) error {
	var f facts
	f.UID, f.GID, f.PID = os.Getuid(), os.Getgid(), os.Getpid()
	f.Session, _ = unix.Getsid(0)
	f.Groups, _ = os.Getgroups()
	f.Env = os.Environ()
	for _, list := range []struct {
		dir  string
		into *[]string
	}{{"/", &f.Root}, {"/proc/self/fd", &f.Descriptors}} {
		entries, err := os.ReadDir(list.dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			*list.into = append(*list.into, e.Name())
		}
	}
	value, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	f.NoNewPrivs = err == nil && value == 1
	text, _ := os.ReadFile("/proc/self/uid_map")
	f.Map = string(text)
	slices.Sort(f.Root)
	return json.NewEncoder(os.Stdout).Encode(f)
}

func ownerOf(st os.FileInfo) int {
	s, _ := st.Sys().(*syscall.Stat_t)
	return int(s.Uid)
}
