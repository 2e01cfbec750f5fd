package evidence

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// The work of verifying a bundle is counted in units, and the memory of decoded
// values in bytes. Both are charged before they are spent, and are bounded by the
// size of what is verified: a bundle that costs more is refused. A run of 10,000
// tasks takes 3 units and 8 bytes per byte. Counts, unlike times, are the same on all
// machines: a unit takes about 20 ns of a processor from 2024, and a counted byte a
// third of a byte.
const (
	// workPerByte and workBase bound the units of work.
	workPerByte = 16
	workBase    = 32 << 20
	// memoryPerByte, memoryBase and memoryMost bound the bytes of decoded values.
	memoryPerByte = 24
	memoryBase    = 64 << 20
	memoryMost    = 4 << 30

	unitEntry     = 250     // an entry, beside its bytes
	unitDocument  = 50      // a document, read or not
	unitCompare   = 2       // a comparison of two numbers or short texts
	unitPlan      = 8       // a byte of a plan, beside decoding it
	unitGrown     = 150     // a task that grew, beside its input
	unitInput     = 4       // a byte of an input that is made for an item
	unitEngine    = 5000    // the rules of a catalog revision, beside its grants
	unitSignature = 3500    // a signature, beside what it covers: ECDSA is the slower one
	unitStamp     = 100_000 // a time-stamp with its chain of certificates
	unitDecision  = 500     // a decision, beside the policies that it evaluates
	unitPolicy    = 50      // a policy in a decision
	unitTool      = 1000    // a decision about a tool call or a vote
	// memoryGrown is the bytes of a task that grew, beside its input.
	memoryGrown = 1024
	// toolMemory is the bytes of a tool in the hands of a role.
	toolMemory = 512
	// signedPerUnit is how many signed bytes are hashed for one unit.
	signedPerUnit = 8
)

// meter counts the work of one Verify. It is safe for concurrent use.
type meter struct {
	work, memory           atomic.Int64
	bytes                  int64 // of the bundle
	workLimit, memoryLimit int64
}

// errWork means that the work of a Verify is used up. The report says so.
var errWork = errors.New("not checked: the bundle takes more work than its size allows")

func newMeter(bytes int64) *meter {
	bytes = min(bytes, math.MaxInt64/(2*workPerByte))
	return &meter{bytes: bytes, workLimit: workBase + workPerByte*bytes, memoryLimit: min(memoryBase+memoryPerByte*bytes, memoryMost)}
}

// spend charges work. After an error the caller must not do it.
func (m *meter) spend(units int) error {
	if m.over() {
		return errWork
	}
	m.work.Add(int64(units))
	if m.over() {
		return errWork
	}
	return nil
}

// hold charges work, and the memory of what is made of documents.
func (m *meter) hold(units, bytes int) error {
	m.memory.Add(int64(bytes))
	return m.spend(units)
}

// decode charges the decoding of a document.
func (m *meter) decode(doc []byte) error {
	if m.over() {
		return errWork
	}
	m.memory.Add(canon.Memory(doc))
	return m.spend(len(doc))
}

// entry charges the decoding of an entry.
func (m *meter) entry(leaf []byte) error {
	if err := m.spend(unitEntry); err != nil {
		return err
	}
	return m.decode(leaf)
}

// over reports whether the work is used up.
func (m *meter) over() bool {
	return m.work.Load() > m.workLimit || m.memory.Load() > m.memoryLimit
}

// why says what a bundle that is refused would have cost.
func (m *meter) why() string {
	if m.work.Load() > m.workLimit {
		return fmt.Sprintf("stopped: this bundle of %d bytes takes more than %d units of work to verify, %d for a byte and %d; evidence that a service exports takes about a fifth", m.bytes, m.workLimit, workPerByte, workBase)
	}
	return fmt.Sprintf("stopped: decoding this bundle of %d bytes takes more than %d bytes of memory, %d for a byte and %d, at most %d; evidence that a service exports takes about a third", m.bytes, m.memoryLimit, memoryPerByte, memoryBase, int64(memoryMost))
}

// sizeOf is the size of what o and b give Verify to read.
func sizeOf(b *bundle.Bundle, o *Options) int64 {
	n := b.Size()
	for _, c := range o.Copies {
		for _, raw := range c.Checkpoints {
			n += int64(len(raw))
		}
	}
	return n
}

func (m *meter) report() *report.Work {
	// What was charged beyond a limit was not done, and depends on chance.
	return &report.Work{Bytes: m.bytes, Units: min(m.work.Load(), m.workLimit+1), UnitLimit: m.workLimit, Memory: min(m.memory.Load(), m.memoryLimit+1), MemoryLimit: m.memoryLimit}
}
