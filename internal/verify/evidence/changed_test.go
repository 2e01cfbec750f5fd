package evidence

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

// verifying gives subagent code a verify command, and its manifests the time of it.
func (s *story) verifying(time api.Duration) {
	s.editCatalog = func(docs map[api.Ref]any) {
		code := docs["subagent/code"].(api.Subagent) //nolint:forcetypeassert // publish made it
		code.Verify = &api.Verify{Command: []string{"./check.sh"}, Protects: []string{"tests/**"}}
		docs["subagent/code"] = code
	}
	s.publish("local:ann")
	s.editManifest = func(m *record.Manifest) { m.VerifyTime = time }
}

// patched has the next results change a file, and name what verify runs.
func (s *story) patched(file string, changed ...string) {
	s.editResult = func(r *record.Result) {
		r.Summary.Files = []api.FileChange{{Path: file, Change: "modified"}}
		r.Summary.Verify = &api.VerifyReport{Passed: true, Changed: changed}
	}
}

// A patch that changes what verify runs is named in the result, and the report says so. A
// result that does not name it is found, and so is an entry that counts another number. A
// manifest from before results named it keeps the rule of its time.
//
// proves R-A7, R-D10
func TestAPatchThatChangesItsCheckIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		file    string
		changed []string
		time    api.Duration
		entry   int64
		failed  string
		says    string
	}{
		"another file":              {file: "one.txt", time: api.DefaultVerifyTime},
		"the check":                 {file: "check.sh", changed: []string{"check.sh"}, time: api.DefaultVerifyTime, entry: 1, says: "the patch changes check.sh, which verify runs"},
		"a protected file":          {file: "tests/ä.py", changed: []string{"tests/ä.py"}, time: api.DefaultVerifyTime, entry: 1, says: `the patch changes "tests/ä.py", which verify runs`},
		"the list was removed":      {file: "check.sh", time: api.DefaultVerifyTime, failed: "the patch changes check.sh, which verify runs, but the result does not say so"},
		"another file is named":     {file: "one.txt", changed: []string{"check.sh"}, time: api.DefaultVerifyTime, entry: 1, failed: "verify runs check.sh, which the patch does not change"},
		"the entry counts none":     {file: "check.sh", changed: []string{"check.sh"}, time: api.DefaultVerifyTime, failed: "changed"},
		"before results named it":   {file: "check.sh"},
		"named by an early service": {file: "one.txt", changed: []string{"check.sh"}, entry: 1, failed: "which the patch does not change"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.earlier5 = c.time == 0
			s.verifying(c.time)
			s.patched(c.file, c.changed...)
			s.editEntry = func(_ uint64, e *record.Entry) {
				if d, ok := e.Detail.(record.DispatchEnd); ok {
					d.Changed = c.entry
					e.Detail = d
				}
			}
			w := &work{id: "d-01"}
			s.admit(w)
			s.start(w)
			s.finish(w, api.EventFinished, "")
			r := Verify(reread(t, s.bundle(bundle.Case{Dispatch: "d-01"})), s.trust(), Options{})
			text := r.Text()
			if r.Failed() != (c.failed != "") || !strings.Contains(text, c.failed) || !strings.Contains(text, c.says) || c.says == "" && c.failed == "" && strings.Contains(text, "which verify runs") {
				t.Errorf("want %q, and %q said:\n%s", c.failed, c.says, text)
			}
		})
	}
}
