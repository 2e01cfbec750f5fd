package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestFaultsOfTheMachineAreToldFromOtherErrors(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		err := fmt.Errorf("blob: %w", errors.Join(errors.New("x"), &fs.PathError{Op: "write", Path: "p", Err: errno}))
		if !IsFault(err) {
			t.Errorf("%v is not a fault", err)
		}
	}
	_, missing := os.Open(filepath.Join(t.TempDir(), "none"))
	for _, err := range []error{nil, missing, errors.New("no space left on device"), syscall.EACCES, syscall.EXDEV} {
		if IsFault(err) {
			t.Errorf("%v is a fault", err)
		}
	}
	if f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0); err == nil {
		_, err = f.WriteString("x")
		if !IsFault(err) {
			t.Errorf("a write to a full device: %v", err)
		}
		_ = f.Close()
	}
}
