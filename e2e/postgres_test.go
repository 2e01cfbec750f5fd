package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// postgres is a database server of the test's own, on a unix socket alone, which runs as
// the account that Debian made for such servers.
type postgres struct {
	t       testing.TB
	bin     string
	account syscall.Credential
	dir     string // of its socket
	admin   string // password
}

// newPostgres starts one in a directory of the world. It ends with the test.
func newPostgres(w *world) *postgres {
	w.t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		w.t.Fatalf("no PostgreSQL: run scripts/setup (%v)", err)
	}
	u, err := user.Lookup("postgres")
	must(w.t, err)
	uid, err := strconv.Atoi(u.Uid)
	must(w.t, err)
	gid, err := strconv.Atoi(u.Gid)
	must(w.t, err)
	w.mkdir("postgres")
	must(w.t, os.Chown(w.path("postgres"), uid, gid))
	must(w.t, os.Chmod(w.dir, 0o755))
	p := &postgres{w.t, filepath.Dir(found[len(found)-1]), syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, w.path("postgres"), newKey()}
	data, first := w.path("postgres/data"), w.path("postgres/admin")
	must(w.t, os.WriteFile(first, []byte(p.admin), 0o600))
	must(w.t, os.Chown(first, uid, gid))
	p.run("", "initdb", "-D", data, "-U", "admin", "-A", "scram-sha-256", "--pwfile", first, "--no-sync", "--locale=C.UTF-8")
	must(w.t, os.Remove(first))
	server := p.command("postgres", "-D", data, "-k", p.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB")
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	must(w.t, server.Start())
	w.t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT) // at once
		_ = server.Wait()
	})
	for late := range polling(time.Minute) {
		if p.command("pg_isready", "-q", "-h", p.dir).Run() == nil {
			break
		}
		if late {
			w.t.Fatalf("PostgreSQL does not start: %s", log.String())
		}
	}
	return p
}

func (p *postgres) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, program), args...)
	cmd.Dir, cmd.Env = p.dir, []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "PGPASSWORD=" + p.admin}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &p.account}
	return cmd
}

func (p *postgres) run(input, program string, args ...string) string {
	p.t.Helper()
	cmd := p.command(program, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s: %v: %s", program, err, out)
	}
	return strings.TrimSpace(string(out))
}

// sql runs statements as the administrator, and returns what they print.
func (p *postgres) sql(text string) string {
	p.t.Helper()
	return p.run(text, "psql", "-h", p.dir, "-U", "admin", "-d", "postgres", "-qAt", "-v", "ON_ERROR_STOP=1")
}

func (p *postgres) socket() string { return filepath.Join(p.dir, ".s.PGSQL.5432") }
