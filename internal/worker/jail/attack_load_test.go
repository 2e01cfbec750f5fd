//go:build linux

package jail

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// loadPrograms exhaust a resource and report how much they got.
func loadPrograms() map[string]func(facts) error {
	return map[string]func(facts) error{
		"load own sockets":  ownSockets,
		"load own terminal": underOwnTerminal,
		"load needed calls": neededCalls,
		"load hold":         hold,
		"load fork bomb": func(facts) error {
			started := 0
			for {
				cmd := exec.Command("/usr/bin/sleep", "1000")
				if err := cmd.Start(); err != nil {
					fmt.Println("processes", started)
					return err
				}
				started++
				if started > 5000 {
					return nil
				}
			}
		},
		"load endless forks": func(facts) error { // a bomb whose children keep forking after the first process exits
			return exec.Command("/bin/sh", "-c", `f() { f | f & }; f; f; f; sleep 0.3`).Run()
		},
		"load memory bomb": func(facts) error {
			for i := range 64 {
				b, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
				if err != nil {
					return fmt.Errorf("after %d times 64 MiB: %w", i, err)
				}
				for at := 0; at < len(b); at += 4096 {
					b[at] = 1
				}
			}
			return nil
		},
		"load disk filler": func(facts) error {
			block := make([]byte, 1<<20)
			total := 0
			defer func() { fmt.Println("MiB", total) }()
			var last error
			for _, dir := range []string{".", "/tmp", "/dev/shm", HomeDir} {
				for i := range 40 {
					f, err := os.Create(dir + "/fill" + strconv.Itoa(i))
					if err != nil {
						return err
					}
					for range 8 {
						if _, last = f.Write(block); last != nil {
							break
						}
						total++
					}
					if err := f.Close(); err != nil {
						return err
					}
					if last != nil {
						break
					}
				}
			}
			return last
		},
		"load sparse file": func(facts) error {
			signal.Ignore(unix.SIGXFSZ)
			f, err := os.Create("sparse")
			if err != nil {
				return err
			}
			return f.Truncate(1 << 40)
		},
		"load many files": func(facts) error {
			for i := range 1_000_000 {
				f, err := os.Create("file" + strconv.Itoa(i))
				if err != nil {
					fmt.Println("files", i)
					return err
				}
				_ = f.Close()
			}
			return nil
		},
		"load deep directories": func(facts) error {
			for i := range 1_000_000 {
				if err := os.Mkdir("d", 0o755); err != nil {
					fmt.Println("depth", i)
					return err
				}
				if err := os.Chdir("d"); err != nil {
					return err
				}
			}
			return nil
		},
		"load deaf": func(facts) error {
			signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
			fmt.Println("deaf")
			for {
				_ = unix.Pause()
			}
		},
		"load daemon": func(facts) error {
			cmd := exec.Command("/bin/sh", "-c", "setsid sh -c 'setsid sleep 1000 & sleep 1000' >/dev/null 2>&1 </dev/null & echo started")
			cmd.Stdout = os.Stdout
			return cmd.Run()
		},
		"load descriptors": func(facts) error {
			for i := range 1_000_000 {
				if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
					fmt.Println("descriptors", i)
					return err
				}
			}
			return nil
		},
		"load large parent": func(facts) error { // whose children have its memory until they execute something else
			b, err := unix.Mmap(-1, 0, 160<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				return err
			}
			for at := 0; at < len(b); at += 4096 {
				b[at] = 1
			}
			for range 300 {
				if err := exec.Command("/bin/true").Run(); err != nil {
					return err
				}
			}
			return nil
		},
		"load own limits": func(facts) error {
			var errs []error
			for _, r := range []int{unix.RLIMIT_NOFILE, unix.RLIMIT_NPROC, unix.RLIMIT_FSIZE, unix.RLIMIT_CORE, unix.RLIMIT_MEMLOCK} {
				var now unix.Rlimit
				if err := unix.Prlimit(0, r, nil, &now); err != nil {
					return err
				}
				if err := unix.Prlimit(0, r, &unix.Rlimit{Cur: now.Max + 1, Max: now.Max + 1}, nil); err == nil {
					return nil
				} else {
					errs = append(errs, err)
				}
			}
			return errors.Join(errs...)
		},
		"load environment": func(facts) error { fmt.Println(strings.Join(os.Environ(), "\n")); return nil },
		"load output": func(facts) error {
			block := []byte(strings.Repeat("x", 1<<16))
			for range 512 { // 32 MiB
				if _, err := os.Stdout.Write(block); err != nil {
					return err
				}
			}
			return nil
		},
		"owner of a jail": func(f facts) error { // for the test that kills it
			j, err := Start(tContext(), Spec{})
			if err != nil {
				return err
			}
			fmt.Println(j.process.Pid)
			for _, d := range j.groups.dirs {
				fmt.Println(d.path)
			}
			fmt.Println("end")
			_, err = j.Run(tContext(), Command{Argv: []string{"/bin/sleep", "1000"}})
			return err
		},
		"start refused": func(facts) error {
			_, err := Start(tContext(), Spec{})
			if miss, ok := errors.AsType[*MissingError](err); ok {
				fmt.Println("layer:", miss.Layer, "fix:", miss.Fix)
			}
			return err
		},
		"cpu": func(facts) error {
			for began := time.Now(); time.Since(began) < time.Second; {
			}
			return nil
		},
	}
}
