package e2e

import "os"

// world is a world whose commands are those of an account of the machine. Its manifest is
// published by alice.
func (s *team) world(uid int) *world {
	s.t.Helper()
	dir, err := os.MkdirTemp("", "bailiwick-world-") //nolint:usetesting // its parents are open to other accounts
	must(s.t, err)
	s.t.Cleanup(func() { must(s.t, os.RemoveAll(dir)) })
	must(s.t, os.Chmod(dir, 0o755)) // the service reads sources there
	w := &world{t: s.t, uid: uid, dir: dir, on: s, env: []string{"TMPDIR=" + dir + "/tmp", "NO_COLOR=1"}}
	for _, d := range []string{"tmp", "home", "gate"} {
		w.mkdir(d)
	}
	w.own(".")
	return w
}
