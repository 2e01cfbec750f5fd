//go:build linux

package jail

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The attacks on memory that belongs to everybody. Each takes takeBytes, four times the limit of its jail, and succeeds when
// it has them.

const (
	takeBytes = 256 << 20
	takeLimit = 64 << 20
	takeStep  = 1 << 20
	takeHuge  = "take huge pages and give back all but a small one"
)

func touch(b []byte) {
	for at := 0; at < len(b); at += 4096 {
		b[at] = 1
	}
}

// takePieces takes memory piece by piece.
func takePieces(piece int, take func() error) error {
	for got := 0; got < takeBytes; got += piece {
		if err := take(); err != nil {
			return fmt.Errorf("after %d MiB: %w", got>>20, err)
		}
	}
	linger()
	return nil
}

func mapShared(fd, flags int) func(facts) error {
	return func(facts) error {
		return takePieces(takeStep, func() error {
			b, err := unix.Mmap(fd, 0, takeStep, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|flags)
			if err == nil {
				touch(b)
			}
			return err
		})
	}
}

// takeAttacks take memory in every way that a program without rights has.
func takeAttacks() map[string]func(facts) error {
	return map[string]func(facts) error{
		"take shared mappings": mapShared(-1, unix.MAP_ANON),
		"take a shared mapping that is given back": func(facts) error { // no process has its pages any more
			return takePieces(takeStep, func() error {
				b, err := unix.Mmap(-1, 0, takeStep, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
				if err != nil {
					return err
				}
				touch(b)
				return unix.Madvise(b, unix.MADV_DONTNEED)
			})
		},
		"take shared mappings of /dev/zero": func(f facts) error {
			fd, err := unix.Open("/dev/zero", unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			return mapShared(fd, 0)(f)
		},
		"take a memfd": func(facts) error {
			fd, err := unix.MemfdCreate("take", 0)
			if err != nil {
				return err
			}
			block := make([]byte, takeStep)
			return takePieces(takeStep, func() error { _, err := unix.Write(fd, block); return err })
		},
		"take files": func(facts) error {
			block := make([]byte, takeStep)
			f, err := os.Create("/dev/shm/take")
			if err != nil {
				return err
			}
			defer func() { _ = os.Remove(f.Name()) }()
			return takePieces(takeStep, func() error { _, err := f.Write(block); return err })
		},
		"take by many processes": func(facts) error {
			var children []*exec.Cmd
			err := takePieces(takeStep*32, func() error {
				cmd := exec.Command("/proc/self/exe", attackName, "take a little")
				children = append(children, cmd)
				return cmd.Start()
			})
			for _, c := range children {
				err = errors.Join(err, c.Wait())
			}
			return err
		},
		"take a little": func(facts) error { // one of many
			b, err := unix.Mmap(-1, 0, takeStep*32, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err == nil {
				touch(b)
				linger()
			}
			return err
		},
		"take memory of a process whose first thread has exited": func(facts) error { // its status says nothing of memory
			if unix.Gettid() != unix.Getpid() {
				return errors.New("the attack is not on the first thread")
			}
			go func() {
				for { // until the first thread has exited
					status, err := os.ReadFile("/proc/self/status")
					if err == nil && !strings.Contains(string(status), "RssAnon") {
						break
					}
					time.Sleep(time.Millisecond)
				}
				err := takePieces(takeStep, func() error {
					b, err := unix.Mmap(-1, 0, takeStep, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
					if err == nil {
						touch(b)
					}
					return err
				})
				if err != nil {
					fmt.Println("blocked:", err)
					os.Exit(10)
				}
				fmt.Println("OPEN")
				os.Exit(0)
			}()
			_, _, errno := unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
			return errno
		},
		"take pipes by threads with descriptors of their own": func(facts) error {
			if _, _, err := os.Pipe(); err != nil { // the runtime's own descriptors exist before the tables part
				return err
			}
			return takeMore(func() (int, error) {
				type took struct {
					n   int
					err error
				}
				all := make(chan took)
				go func() {
					runtime.LockOSThread()
					if err := unix.CloseRange(1<<20, 1<<20, unix.CLOSE_RANGE_UNSHARE); err != nil {
						all <- took{0, err}
						return
					}
					n, block := 0, make([]byte, 4096)
					for range 2000 {
						var p [2]int
						if unix.Pipe2(p[:], unix.O_NONBLOCK|unix.O_CLOEXEC) != nil {
							break
						}
						n += fill(p[1], block)
					}
					all <- took{n, nil}
					time.Sleep(time.Hour)
				}()
				got := <-all
				return got.n, got.err
			})
		},
		"take names of files": func(facts) error { // an empty file takes more than 1 KiB of the kernel's
			dir, err := os.MkdirTemp("/dev/shm", "take")
			if err != nil {
				return err
			}
			defer func() { _ = os.RemoveAll(dir) }()
			i := 0
			return takePieces(2<<10, func() error {
				i++
				return unix.Mknod(fmt.Sprintf("%s/%0200d", dir, i), unix.S_IFREG|0o600, 0)
			})
		},
		takeHuge: func(facts) error {
			const huge = 2 << 20
			resident := func() int {
				text, _ := os.ReadFile("/proc/self/statm")
				fields := append(strings.Fields(string(text)), "0", "0")
				n, _ := strconv.Atoi(fields[1])
				return n * 4096
			}
			return takeMore(func() (int, error) {
				b, err := unix.Mmap(-1, 0, 2*huge, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
				if err != nil {
					return 0, err
				}
				_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
				at := (huge - int(uintptr(unsafe.Pointer(&b[0]))%huge)) % huge
				before := resident()
				b[at] = 1
				n := resident() - before
				return n, unix.Madvise(b[at+4096:at+huge], unix.MADV_DONTNEED)
			})
		},
		"take page tables": func(facts) error { // a read of one page in 2 MiB takes a page for the table, and none for itself
			const table = 2 << 20
			b, err := unix.Mmap(-1, 0, takeBytes/4096*table, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
			if err != nil {
				return err
			}
			_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE)
			at, sum := 0, byte(0)
			return takePieces(4096, func() error { sum += b[at]; at += table; return nil })
		},
		"take socket pairs":                          func(facts) error { return takePairs(false) },
		"take socket pairs whose senders are closed": func(facts) error { return takePairs(true) },
		"take udp": takeUDP,
		"take tcp": takeTCP,
		"take huge pages": func(facts) error { // of the machine's pool; the file is made even where that is empty
			fd, err := unix.MemfdCreate("take", unix.MFD_HUGETLB)
			if err == nil {
				err = unix.Close(fd)
			}
			return err
		},
		"take large pipes": takePipes,
		"take huge pages by way of pipes": func(facts) error {
			return takePieces(2<<20, func() error {
				var p [2]int
				if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
					return err
				}
				b, err := unix.Mmap(-1, 0, 4<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
				if err != nil {
					return err
				}
				_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
				touch(b)
				at := (2<<20 - int(uintptr(unsafe.Pointer(&b[0]))%(2<<20))) % (2 << 20)
				if _, err := unix.Vmsplice(p[1], []unix.Iovec{{Base: &b[at], Len: 4096}}, 0); err != nil {
					return err
				}
				return unix.Munmap(b)
			})
		},
	}
}

// fill writes until nothing more fits, and returns how much did.
func fill(fd int, block []byte) int {
	n := 0
	for {
		m, err := unix.Write(fd, block)
		if err != nil {
			return n
		}
		n += m
	}
}

// takeMore repeats take, which returns how many bytes it took, until all are taken.
func takeMore(take func() (int, error)) error {
	for got := 0; got < takeBytes; {
		n, err := take()
		if err != nil {
			return fmt.Errorf("after %d MiB: %w", got>>20, err)
		}
		if n < 64<<10 {
			return fmt.Errorf("after %d MiB: %w", got>>20, errBlocked)
		}
		got += n
	}
	linger()
	return nil
}

// linger keeps what was taken long enough for a look at the jail.
func linger() {
	if os.Getenv("HOME") == HomeDir {
		time.Sleep(2 * watchMax)
	}
}

func takePairs(closed bool) error {
	block := make([]byte, 1<<16)
	return takeMore(func() (int, error) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		_ = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20)
		n := fill(pair[0], block)
		if closed {
			_ = unix.Close(pair[0])
		}
		return n, nil
	})
}

// taken keeps connections from being closed when they are no longer used.
var taken []any

func takeUDP(facts) error {
	block := make([]byte, 60_000)
	return takeMore(func() (int, error) {
		l, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return 0, err
		}
		taken = append(taken, l)
		_ = l.SetReadBuffer(4 << 20)
		raw, err := l.SyscallConn()
		if err != nil {
			return 0, err
		}
		for range 200 {
			if _, err := l.WriteTo(block, l.LocalAddr()); err != nil {
				return 0, err
			}
		}
		held := 0
		err = raw.Control(func(fd uintptr) {
			var info [9]uint32 // SO_MEMINFO: the first is what is in the receive queue
			size := uint32(unsafe.Sizeof(info))
			_ = call(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)))
			held = int(info[0])
		})
		return held, err
	})
}

func takeTCP(facts) error {
	block := make([]byte, 1<<16)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	return takeMore(func() (int, error) {
		c, err := net.DialTimeout("tcp", server.Addr().String(), 3*time.Second)
		if err != nil {
			return 0, err
		}
		peer, err := server.Accept()
		if err != nil {
			return 0, err
		}
		taken = append(taken, c, peer)
		_ = c.(*net.TCPConn).SetWriteBuffer(4 << 20)
		_ = c.SetWriteDeadline(time.Now().Add(3 * time.Second)) // an emulated processor needs long for the first
		n := 0
		for {
			m, err := c.Write(block)
			if n += m; err != nil {
				return n, nil //nolint:nilerr // full
			}
			_ = c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		}
	})
}

func takePipes(facts) error {
	block := make([]byte, 1<<16)
	return takeMore(func() (int, error) {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
			return 0, err
		}
		if _, err := unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, 1<<20); err != nil {
			return 0, err
		}
		return fill(p[1], block), nil
	})
}

// countAttacks take as many of something as they can, say how many, and keep them.
func countAttacks() map[string]func(facts) error {
	keep := func(count func() (int, error)) func(facts) error {
		return func(facts) error {
			n, err := count()
			fmt.Println("took", n, err)
			fmt.Println("kept")
			time.Sleep(time.Minute)
			return nil
		}
	}
	return map[string]func(facts) error{
		"keep inotify instances": keep(func() (int, error) {
			for n := 0; ; n++ {
				if _, err := unix.InotifyInit(); err != nil || n == 1000 {
					return n, err
				}
			}
		}),
		"keep descriptors in flight": keep(func() (int, error) {
			rights := make([]int, 250)
			for n := 0; ; n += len(rights) {
				pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
				if err != nil {
					return n, err
				}
				for {
					if err = unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(rights...), nil, 0); err != nil {
						break
					}
					n += len(rights)
				}
				n -= len(rights)
				if !errors.Is(err, unix.EAGAIN) || n > 20_000 {
					return n, err
				}
			}
		}),
		"keep processors busy": func(facts) error { // every session has its own share of the time
			fmt.Println("kept")
			for range 100 {
				cmd := exec.Command("/bin/sh", "-c", "while :; do :; done")
				cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
				if err := cmd.Start(); err != nil {
					return err
				}
			}
			for spin := 0; ; spin++ {
				runtime.KeepAlive(spin)
			}
		},
	}
}
