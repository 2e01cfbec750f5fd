package console

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
)

// defaultPager quits at once if the answer fits the screen, and passes colour
// on but no other control sequence.
const defaultPager = "less -FRX"

// Page runs print with its answer going through the user's pager, if the answer
// is text and goes to a terminal. The pager is BAILIWICK_PAGER, else PAGER, else
// less; an empty variable, cat or NoPager turns paging off. A pager that cannot
// be started is not used.
func (o *Output) Page(print func() error) error {
	pager := o.pager()
	if pager == nil {
		return print()
	}
	child := exec.Command(pager[0], pager[1:]...) //nolint:gosec,noctx // G204: the user's own pager, which the user ends
	child.Stdout, child.Stderr, child.Env = o.File(), o.Stderr, o.Env
	in, err := child.StdinPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		return print()
	}
	screen, answer := o.Stdout, &answerWriter{to: in}
	o.Stdout = answer
	err = print()
	o.Stdout = screen
	if err == nil {
		err = answer.err
	}
	if errors.Is(answer.err, syscall.EPIPE) { // the user has left the pager
		err = nil
	}
	_, _ = in.Close(), child.Wait() // the user has seen the answer; the pager's own status means nothing
	return err
}

// pager is the command line of the pager, or nothing.
func (o *Output) pager() []string {
	if !o.Screen || o.NoPager || o.Format != "text" || o.Dumb() {
		return nil
	}
	line := defaultPager
	for _, name := range []string{"PAGER", "BAILIWICK_PAGER"} {
		if value, ok := o.Lookup(name); ok {
			line = value
		}
	}
	words := strings.Fields(line)
	if len(words) == 0 || words[0] == "cat" {
		return nil
	}
	path, err := exec.LookPath(words[0])
	if err != nil {
		return nil
	}
	return append([]string{path}, words[1:]...)
}
