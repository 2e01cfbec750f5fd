package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func walBytes(t *testing.T, dir string) int64 {
	t.Helper()
	fi, err := os.Stat(filepath.Join(dir, fileName+"-wal"))
	if err != nil {
		t.Fatal(err)
	}
	return fi.Size()
}

// A service that is killed leaves its write-ahead log. The next starts with an
// empty one, however short each lives.
func TestManyKilledServicesDoNotGrowTheLog(t *testing.T) {
	t.Parallel()
	_, dir := closedState(t)
	for range 4 {
		cmd := helper(t, "write", dir) // fewer functions than a checkpoint waits for
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	left := walBytes(t, dir) // the control: a killed service leaves a log
	s, err := Open(t.Context(), config(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if now := walBytes(t, dir); now != 0 || left == 0 {
		t.Errorf("the log has %d bytes after a start, %d before", now, left)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// A reader that keeps its snapshot blocks the checkpoint. Once it has ended, the
// log that has grown meanwhile is cut.
func TestALogGrownUnderAReaderIsCutAfterIt(t *testing.T) {
	t.Parallel()
	s, dir := create(t)
	big := strings.Repeat("x", 256<<10)
	holding, release := make(chan struct{}), make(chan struct{})
	read := make(chan error, 1)
	go func() {
		read <- s.Read(t.Context(), func(v *View) error {
			var n int
			err := v.Get("SELECT count(*) FROM pair", nil, &n)
			close(holding)
			<-release
			return err
		})
	}()
	<-holding
	for range 2 * maxLogBytes / len(big) {
		if err := s.Update(t.Context(), insert(big)); err != nil {
			t.Fatal(err)
		}
	}
	grown := walBytes(t, dir)
	close(release)
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	for range 2 * defaultCheckpointJobs { // two checkpoints' worth
		if err := s.Update(t.Context(), insert("y")); err != nil {
			t.Fatal(err)
		}
	}
	if now := walBytes(t, dir); grown <= maxLogBytes || now > maxLogBytes {
		t.Errorf("the log has %d bytes, %d while it was read", now, grown)
	}
}
