package capture

import (
	"bufio"
	"fmt"
)

// TooLargeError means that a checkout needs more bytes than it may have. Nothing of it
// was written.
type TooLargeError struct {
	Bytes, Limit int64  // in blocks of 4 KiB, each file at its full size
	Largest      string // path of the largest file
	LargestBytes int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("its files need %d bytes on disk, and limits.disk is %d (largest: %s, %d bytes); raise limits.disk of the subagent and its target, or dispatch from a commit that needs less",
		e.Bytes, e.Limit, Printable(e.Largest), e.LargestBytes)
}

// onDisk returns what a file of this size takes, in whole blocks and without holes.
func onDisk(size int64) int64 {
	const block = 4096
	return max(1, (size+block-1)/block) * block
}

// Fits returns a *TooLargeError if a finished checkout is larger than MaxCheckout.
func (r *Repo) Fits(x *Index) error {
	if r.MaxCheckout == 0 || x.Size() <= r.MaxCheckout {
		return nil
	}
	e := &TooLargeError{Bytes: x.Size(), Limit: r.MaxCheckout}
	for i := range x.entries {
		if x.entries[i].bytes >= e.LargestBytes {
			e.Largest, e.LargestBytes = x.entries[i].path, x.entries[i].bytes
		}
	}
	return e
}

// fits returns a *TooLargeError if files, each with its own copy, and directories, the top one included, need
// more than MaxCheckout. It asks git for the sizes and reads no content.
func (o *objects) fits(files []treeFile, directories int) error {
	e := &TooLargeError{Bytes: int64(directories) * onDisk(0), Limit: o.repo.MaxCheckout}
	if e.Limit == 0 {
		return nil
	}
	uses, order := map[string]int64{}, []treeFile{}
	for _, f := range files {
		if f.mode != modeGitlink {
			if uses[f.id]++; uses[f.id] == 1 {
				order = append(order, f)
			}
		}
	}
	asked := make(chan struct{})
	go func() { // ends when all is asked, or close has killed git
		defer close(asked)
		in := bufio.NewWriterSize(o.in, 1<<15)
		for _, f := range order {
			_, _ = in.WriteString("info " + f.id + "\n") // in keeps its error; missing answers are found below
		}
		_, _ = in.WriteString("flush\n")
		_ = in.Flush()
	}()
	for _, f := range order {
		_, _, size, err := o.next()
		if err != nil {
			o.close()
			<-asked
			return fmt.Errorf("%s: %w", Printable(f.path), o.repo.incomplete(err))
		}
		if size >= e.LargestBytes {
			e.Largest, e.LargestBytes = f.path, size
		}
		each := onDisk(size)
		if n := uses[f.id]; each > (maxBytes-e.Bytes)/n {
			e.Bytes = maxBytes
		} else {
			e.Bytes += each * n
		}
	}
	<-asked
	if e.Bytes > e.Limit {
		return e
	}
	return nil
}

const maxBytes = 1 << 60 // more than any disk; a sum stops there
