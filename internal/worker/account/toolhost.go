package account

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// CheckPipes refuses what is no pipe of uid.
func CheckPipes(files []*os.File, uid uint32) error {
	for _, f := range files {
		if err := CheckFile(f, uid, func(_ int, st *unix.Stat_t) error {
			if st.Mode&unix.S_IFMT != unix.S_IFIFO {
				return errors.New("it is no pipe")
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// ToolHost is what a tool host is started with.
type ToolHost struct {
	Start  *os.File // a pipe with its record.ToolStart
	Mounts Opened
	Limits Limits
}

// Close closes what its process has copies of.
func (h ToolHost) Close() error { return errors.Join(h.Start.Close(), h.Mounts.Close()) }

// ToolHostOf returns what the tool host of a server is started with: the server of a verified revision, values of its secrets by their
// references, the trust of root in an installation, and what it sees of the machine. The directory gate.Kept is made and given to the
// service's uid: root's files are shown to no block, and the service cannot reach it below root's. Own is what it uses beside its jail.
func ToolHostOf(d api.Dirs, service int, rev *catalog.Revision, server api.Name, gate record.ToolGate, own Limits, value func(ref string) (string, error)) (h ToolHost, err error) {
	s, paths, err := toolStart(d, service, rev, server, gate, value)
	if err != nil {
		return h, err
	}
	line, err := json.Marshal(s) //nolint:gosec // G117: for the pipe to the process
	if err != nil {
		return h, err
	}
	defer clear(line)
	if h.Mounts, err = Open(service, paths); err != nil {
		return h, err
	}
	if h.Start, err = FilledPipe(append(line, '\n')); err != nil {
		return h, errors.Join(err, h.Mounts.Close())
	}
	h.Limits = toolLimits(s.Server, own)
	return h, nil
}

func toolStart(d api.Dirs, service int, rev *catalog.Revision, server api.Name, gate record.ToolGate, value func(ref string) (string, error)) (s record.ToolStart, paths []Path, err error) {
	gate.Revision, gate.Catalog = rev.Digest(), d.Catalog()
	s.Gate, s.Secrets = &gate, record.Secrets{}
	if s.Server, _, err = rev.ToolServer(server); err != nil {
		return s, nil, err
	}
	var others []string
	if host := s.Server.Host(); host != nil {
		others = slices.Clone(host.ReadOnly)
		for _, to := range host.Connect {
			if path, ok := strings.CutPrefix(to, "unix:"); ok {
				others = append(others, path)
			}
		}
		if host.Capability != "" {
			c, _, err := rev.Capability(host.Capability)
			if err != nil {
				return s, nil, err
			}
			s.Files = c.Files
		}
	}
	for _, name := range s.Server.SecretNames() {
		secret, _, err := rev.Secret(name)
		if err == nil {
			s.Secrets[name], err = value(secret.Ref)
		}
		if err != nil {
			return s, nil, api.Errorf(api.CodeInvalid, "tool server %q: secret %q: %w", server, name, err)
		}
	}
	root, err := seal.LoadDeployKeys(d)
	if err != nil {
		return s, nil, fmt.Errorf("tool server %q: %w", server, err)
	}
	var errs [4]error
	s.Gate.Trust, errs[0] = root.Encode()
	s.Gate.Operators, errs[1] = os.ReadFile(d.OperatorRoot())
	errs[2], errs[3] = os.MkdirAll(gate.Kept, 0o700), os.Chown(gate.Kept, service, service)
	if err := errors.Join(errs[:]...); err != nil {
		return s, nil, fmt.Errorf("tool server %q: %w", server, err)
	}
	slices.Sort(others)
	return s, withOthers([]Path{{At: gate.Kept, Write: true}, {At: d.Catalog()}}, slices.Compact(others)), nil
}

// toolLimits returns the limits of a tool host with the jail of its server, beside what it uses itself.
func toolLimits(s api.ToolServer, own Limits) Limits {
	if host := s.Host(); host != nil {
		of := host.Limits.Or(api.DefaultLimits())
		own.Memory, own.Processes, own.CPU = own.Memory+int64(of.Memory), own.Processes+of.Processes, own.CPU+of.CPU
	}
	return own
}
