package agent

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
)

// Bounds of a session.
const (
	MaxSession      = 16 << 20
	maxSessionFiles = 1000
	maxSessionDepth = 16
)

// sessionID is the name of the archive's entry with the program's id of the session.
const sessionID = "id"

// Session is the state of a program's own session, to resume it.
type Session struct {
	ID    string
	Files []File // below Home
}

// Pack writes a session as a tar archive.
func (s *Session) Pack(w io.Writer) error {
	out := tar.NewWriter(w)
	for _, f := range slices.Concat([]File{{sessionID, []byte(s.ID)}}, s.Files) {
		err := out.WriteHeader(&tar.Header{Name: f.Path, Mode: 0o600, Size: int64(len(f.Content)), Format: tar.FormatPAX})
		if err == nil {
			_, err = out.Write(f.Content)
		}
		if err != nil {
			return err
		}
	}
	return out.Close()
}

// ParseSession reads an archive of Pack. It refuses files outside the adapter's
// session.
func (a *Adapter) ParseSession(archive []byte) (*Session, error) {
	in, s := tar.NewReader(bytes.NewReader(archive)), &Session{}
	for n := 0; ; n++ {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if n > maxSessionFiles || h.Size > MaxSession || h.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("%q: not a file of a session", h.Name)
		}
		content, err := io.ReadAll(io.LimitReader(in, MaxSession))
		if err != nil {
			return nil, err
		}
		switch {
		case n == 0 && h.Name == sessionID:
			s.ID = string(content)
			continue
		case !fs.ValidPath(h.Name) || !slices.ContainsFunc(a.Session, func(p string) bool { return h.Name == p || strings.HasPrefix(h.Name, p+"/") }):
			return nil, fmt.Errorf("%q is outside the session of %s", h.Name, a.Name)
		}
		s.Files = append(s.Files, File{h.Name, content})
	}
	if !validID(s.ID) {
		return nil, fmt.Errorf("%q is not the id of a session", cuttext.Text(s.ID, 100))
	}
	return s, nil
}

// validID reports whether id can stand in an argument list and is no option.
func validID(id string) bool {
	for _, r := range id {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			return false
		}
	}
	return id != "" && id[0] != '-' && len(id) <= 128
}
