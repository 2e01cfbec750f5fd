package jail

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const auditArch = unix.AUDIT_ARCH_AARCH64

func allowedCallsHere() []family { return nil }

func refusedCallsHere() []family { return nil }

func fileRulesHere(func(arg uint32) []bpf.Instruction) []rule { return nil }
