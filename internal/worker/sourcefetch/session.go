package sourcefetch

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// session is a jail in which git speaks to the server of one source.
type session struct {
	jail *jail.Jail
	out  way
	env  []string // of git
	url  string   // of the source, as git in the jail sees it

	request record.FetchRequest
	host    string // of the URL, as known_hosts has it
}

// way is the only way out of the jail.
type way interface {
	failure() error // why the server or this side refused, if that is known
	close()
}

const cachedAt = jail.MountsDir + "/source"

func newSession(ctx context.Context, cfg Config, req record.FetchRequest, u *url.URL, c *cache) (*session, error) {
	spec := jail.Spec{
		Listen: true, Limits: jail.Limits{Memory: 2 << 30, Disk: maxBytes, Files: 10_000, Processes: 64},
	}
	if len(c.commits()) > 0 {
		spec.Mounts = []jail.Mount{{Host: c.git(), Jail: cachedAt}}
	}
	s := &session{request: req, host: knownAs(u)}
	if u.Scheme == "ssh" {
		spec.Home = sshFiles(req)
	}
	j, err := jail.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	s.jail = j
	if u.Scheme == "ssh" {
		s.url = fmt.Sprintf("ssh://%s@127.0.0.1:%d%s", userOf(req.Source), jail.ListenPort, u.Path)
		s.env = append(gitexec.Git{Protocol: "ssh"}.Environ(), "GIT_SSH_COMMAND="+sshCommand(s.host), "GIT_SSH_VARIANT=ssh")
		s.out = newStream(ctx, j.Listener(), cfg.Dial, hostPort(u, "22"))
	} else {
		s.env = gitexec.Git{Protocol: "http"}.Environ()
		s.url = fmt.Sprintf("http://127.0.0.1:%d%s", jail.ListenPort, u.Path)
		s.out = newProxy(j.Listener(), cfg.Dial, u, req)
	}
	return s, nil
}

// hostPort is where a URL leads.
func hostPort(u *url.URL, port string) string {
	if u.Port() != "" {
		port = u.Port()
	}
	if strings.Contains(u.Hostname(), ":") {
		return "[" + u.Hostname() + "]:" + port
	}
	return u.Hostname() + ":" + port
}

func (s *session) close() {
	_ = s.jail.Close()
	s.out.close()
}

// resolve returns what a name refers to on the server.
func (s *session) resolve(ctx context.Context, name string) (found, error) {
	args := []string{"ls-remote", "--quiet", s.url}
	for _, ref := range refsOf(name) {
		args = append(args, ref, ref+"^{}")
	}
	out, err := s.run(ctx, append([]string{"git"}, gitexec.Args(args...)...))
	if err != nil {
		return found{}, err
	}
	return parseRefs(out, name)
}

// fetch gets an object into /workspace/repo, with all that it needs but history and, if
// asked, what the cache has.
func (s *session) fetch(ctx context.Context, want found, cached bool) error {
	format := formatOf(want.object)
	// The commits of the cache are roots of history here, so that the server sends what
	// differs from them.
	script := `set -e
rm -rf repo
git init --quiet --bare --template= --object-format="$0" repo
`
	if cached {
		script += "cp " + cachedAt + "/packed-refs " + cachedAt + "/shallow repo/\necho " + cachedAt + "/objects >repo/objects/info/alternates\n"
	}
	script += `cd repo
exec git "$@"`
	fetch := gitexec.Args("-c", "fetch.unpackLimit=1", "-c", "pack.threads=2", "fetch", "--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head",
		"--no-recurse-submodules", "--refmap=", s.url, "+"+want.object+":"+markers+"new")
	_, err := s.run(ctx, append([]string{"sh", "-c", script, format}, fetch...))
	return err
}

// maxOutput bounds what git prints.
const maxOutput = 1 << 20

// run runs a program in the jail and returns what it prints.
func (s *session) run(ctx context.Context, argv []string) (string, error) {
	out, said := &cuttext.Head{Most: maxOutput}, &cuttext.Head{Most: maxOutput}
	exit, err := s.jail.Run(ctx, jail.Command{Argv: argv, Env: s.env, Stdout: out, Stderr: said})
	switch why := s.out.failure(); {
	case err != nil:
		return "", err
	case exit.Code == 0 && exit.Signal == 0:
		return string(out.Bytes()), nil
	case len(exit.Hit) > 0:
		return "", fmt.Errorf("it takes more than a fetch may: %s", strings.Join(exit.Hit, ", "))
	case why != nil:
		return "", why
	case exit.Signal != 0:
		return "", errors.New("git was ended by " + exit.Signal.String())
	case len(said.Bytes()) == 0:
		return "", errors.New("git failed with status " + strconv.Itoa(exit.Code))
	}
	return "", s.explain(ctx, string(said.Bytes()))
}
