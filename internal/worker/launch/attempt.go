package launch

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// Attempt is an attempt to start, as its service hands it over. The files stay the caller's.
type Attempt struct {
	Manifest []byte       // its envelope
	Keys     seal.History // of the service
	// Secrets are the values of the manifest's secrets, which the service reads in mode
	// same-user. In mode system the launcher reads them, some from Sealed: what operators
	// encrypted to it, by name.
	Secrets record.Secrets
	Sealed  map[api.Name][]byte
	// Approval is what people approved, where the catalog wants that: an api.TaskAction.
	Approval []byte

	Dir     *os.File // of the attempt
	Control *os.File // a listening unix socket
	Log     *os.File // record.WorkErrors of Dir, open for appending
}

// check refuses files that are not what they are to be, or not of the account uid. Only what
// is open counts: no name leads to another file.
func (a *Attempt) check(uid uint32) error {
	for _, f := range []struct {
		what  string
		file  *os.File
		check func(fd int, st *unix.Stat_t) error
	}{
		{"directory", a.Dir, func(_ int, st *unix.Stat_t) error {
			if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o077 != 0 {
				return errors.New("want a directory with mode 0700")
			}
			return nil
		}},
		{"control socket", a.Control, account.Listening},
		{"log", a.Log, func(fd int, st *unix.Stat_t) error {
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || flags&unix.O_APPEND == 0 || flags&unix.O_ACCMODE != unix.O_WRONLY || flags&unix.O_PATH != 0) {
				err = errors.New("want a file that is open for appending alone")
			}
			return err
		}},
	} {
		if err := account.CheckFile(f.file, uid, f.check); err != nil {
			return api.Errorf(api.CodeInvalid, "the %s of the attempt: %w", f.what, err).WithHint("the service gives no such descriptor: find out what else runs under its account")
		}
	}
	return nil
}
