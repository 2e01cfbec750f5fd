//go:build linux

package jail

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openBeneath opens a path as readers of a jail's directories do.
func openBeneath(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// proves R-S2
func TestHomeFilesAreTheAgents(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcde\n"), 20<<16) // beyond what one control message holds
	files := []File{
		{Path: ".config/agent/settings.json", Content: []byte("{}\n")},
		{Path: ".config/agent/run", Mode: 0o755, Content: []byte("#!/bin/sh\necho ran\n")},
		{Path: "empty", Mode: 0o400},
		{Path: "large", Content: large},
	}
	for _, s := range []Spec{{}, {noCgroup: true}, {Lower: []string{lowerDir(t, map[string]string{"file": "x"})}, Copy: true}} {
		s.Home = files
		j := mustStart(t, s)
		out, exit := shell(t, j, `set -e; cd; stat -c '%u:%g:%a %n' . .config .config/agent .config/agent/* empty; cat .config/agent/settings.json; .config/agent/run; wc -c <large
			echo more >>.config/agent/settings.json; mkdir -p session/deep; echo kept >session/deep/state; ln -s /etc/passwd link; ln -s .. session/up; ls /workspace`)
		want := "1000:1000:700 .\n1000:1000:700 .config\n1000:1000:700 .config/agent\n1000:1000:755 .config/agent/run\n1000:1000:600 .config/agent/settings.json\n1000:1000:400 empty\n{}\nran\n20971520\n"
		if s.Copy {
			want += "file\n"
		}
		if exit.Code != 0 || out != want {
			t.Errorf("%+v %s", exit, out)
		}
		if err := j.process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-j.ended
		for name, text := range map[string]string{"session/deep/state": "kept\n", ".config/agent/settings.json": "{}\nmore\n"} {
			f, err := openBeneath(j.Home(), name)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile("/proc/self/fd/" + itoa(f))
			_ = f.Close()
			if err != nil || string(got) != text {
				t.Errorf("%s: %q %v", name, got, err)
			}
		}
		for _, name := range []string{"link", "session/up/large", "../../etc/passwd", "/etc/passwd"} {
			if f, err := openBeneath(j.Home(), name); !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.EXDEV) {
				t.Errorf("a hostile path %s opened: %v %v", name, f, err)
			}
		}
		if got, err := os.ReadFile("/proc/self/fd/" + itoa(j.Home()) + "/link"); err != nil || !strings.Contains(string(got), "root:") {
			t.Errorf("control: following the link: %v", err)
		}
	}
}

func itoa(f *os.File) string { return strconv.Itoa(int(f.Fd())) }

func TestHomeFilesAreValidated(t *testing.T) {
	for want, files := range map[string][]File{
		"below /home/agent":    {{Path: "../x"}},
		"clean path":           {{Path: "a//b"}},
		`home file ""`:         {{Path: ""}},
		`home file "."`:        {{Path: "."}},
		`home file "/etc/x"`:   {{Path: "/etc/x"}},
		"\\x00":                {{Path: "a\x00b"}},
		"permission bits only": {{Path: "a", Mode: fs.ModeSetuid | 0o755}},
		"given twice":          {{Path: "a"}, {Path: "a"}},
		`"a" is a file`:        {{Path: "a"}, {Path: "a/b/c"}},
		"more than 67108864":   {{Path: "a", Content: make([]byte, 40<<20)}, {Path: "b", Content: make([]byte, 40<<20)}},
	} {
		if j, err := Start(t.Context(), Spec{Home: files}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s: %v %v", want, j, err)
		}
	}
	if j, err := Start(t.Context(), Spec{Home: []File{{Path: "a/b"}, {Path: "a"}}}); err == nil || !strings.Contains(err.Error(), "given twice") {
		t.Errorf("a file in the place of a directory: %v %v", j, err)
	}
	_, err := Start(t.Context(), Spec{Home: []File{{Path: "a", Content: make([]byte, 4<<20)}}, Limits: Limits{Disk: 2 << 20}})
	if err == nil || !strings.Contains(err.Error(), "home directory: write \"a\"") || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a home beyond the limit of the disk: %v", err)
	}
}

// proves R-S1, R-S2
func TestMountsAreShownAtAnotherPath(t *testing.T) {
	dir, later := hostWithSockets(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{dir, link} {
		for d := filepath.Dir(link); host == link && d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
			_ = os.Chmod(d, 0o755)
		}
		const at = MountsDir + "/agent"
		j := mustStart(t, Spec{Lower: []string{attackDir(t)}, Mounts: []Mount{{Host: host, Jail: at}}, ReadOnly: []string{"/usr/local/go"}})
		if host == dir {
			later()
		}
		attackExposed(t, j, dir, at)
		out, exit := shell(t, j, "ls "+dir+" 2>/dev/null; touch "+at+"/new || touch /opt/new || touch "+MountsDir+"/new || touch "+at+"/sub/new")
		if exit.Code == 0 || strings.Contains(out, "stream") {
			t.Errorf("%+v %s", exit, out)
		}
	}
	// As root the agent sees what a private directory of the service holds, without a way to it.
	private := filepath.Join(t.TempDir(), "private", "shown")
	if err := errors.Join(os.MkdirAll(private, 0o755), os.WriteFile(filepath.Join(private, "file"), []byte("in private"), 0o644), os.Chmod(filepath.Dir(private), 0o700)); err != nil {
		t.Fatal(err)
	}
	j := mustStart(t, Spec{Mounts: []Mount{{private, MountsDir + "/a/b"}, {dir, MountsDir + "/a/c"}}})
	if out, exit := shell(t, j, "cat "+MountsDir+"/a/b/file; ls -d "+MountsDir+"/a/c/sub; ls "+private); exit.Code == 0 || !strings.HasPrefix(out, "in private"+MountsDir+"/a/c/sub\n") {
		t.Errorf("%+v %s", exit, out)
	}
}

func TestMountsAreValidated(t *testing.T) {
	dir, _ := hostWithSockets(t)
	at := func(p string) Mount { return Mount{dir, p} }
	for want, s := range map[string]Spec{
		"give a clean path below /opt/bailiwick":    {Mounts: []Mount{at("/usr/bin")}},
		`mount at "/opt/bailiwick": give`:           {Mounts: []Mount{at(MountsDir)}},
		`mount at "/opt/bailiwick/../x"`:            {Mounts: []Mount{at(MountsDir + "/../x")}},
		"give a clean absolute path":                {Mounts: []Mount{{"relative", MountsDir + "/a"}}},
		"is shown there too":                        {Mounts: []Mount{at(MountsDir + "/a"), at(MountsDir + "/a/b")}},
		`"/opt/bailiwick/a/b" is shown there too`:   {Mounts: []Mount{at(MountsDir + "/a/b"), at(MountsDir + "/a")}},
		`"/opt" is shown there too; name`:           {Mounts: []Mount{at(MountsDir + "/a")}, ReadOnly: []string{"/opt"}},
		"is neither a regular file nor a directory": {Mounts: []Mount{{dir + "/stream", MountsDir + "/a"}}},
		"mount at /opt/bailiwick/a: lstat /nowhere": {Mounts: []Mount{{"/nowhere", MountsDir + "/a"}}},
	} {
		if j, err := Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s: %v %v", want, j, err)
		}
	}
}
