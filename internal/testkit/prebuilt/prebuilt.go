// Package prebuilt gives tests the programs that they run: built by Go, or, on a machine without Go, of a directory.
package prebuilt

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
)

//nolint:gochecknoglobals // a flag
var dir = flag.String("prebuilt", "", "directory of built programs: bin, trial (with failpoints), helpers (of tests) and packages in dist; empty: tests build what they run")

// Dir returns the directory of -prebuilt, and "" where tests build programs.
func Dir() string { return *dir }

// Program makes the file at the program of the package in the directory pkg.
func Program(at, pkg string) error {
	if *dir != "" {
		place := "helpers"
		if path.Base(path.Dir(pkg)) == "cmd" {
			place = "bin"
		}
		b, err := os.ReadFile(filepath.Join(*dir, place, path.Base(pkg)))
		if err != nil {
			return err
		}
		return os.WriteFile(at, b, 0o755) //nolint:gosec // G306: a program
	}
	build := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-buildvcs=false", "-o", at, pkg) //nolint:gosec // G204: of a test
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return nil
}
