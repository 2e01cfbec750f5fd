package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Asker puts the questions of agents to the person at the terminal. Every line
// of a question stands behind AgentMarker.
type Asker struct {
	o     *Output
	stdin io.Reader
	lines chan answerLine // of standard input; read only while a question is open
	want  chan struct{}
}

type answerLine struct {
	text string
	err  error
}

// NewAsker returns an Asker, or nil if there is nobody to ask: standard input or
// standard error is no terminal, or the answer of the command is not text.
func (o *Output) NewAsker(stdin io.Reader) *Asker {
	if !o.Interactive || !o.Terminal || o.Format != "text" {
		return nil
	}
	a := &Asker{o: o, stdin: stdin, lines: make(chan answerLine), want: make(chan struct{})}
	go func() { // ends with the process: a read from a terminal cannot be interrupted
		in := bufio.NewReader(stdin)
		for range a.want {
			line, err := in.ReadString('\n')
			a.lines <- answerLine{strings.TrimSpace(line), err}
		}
	}()
	return a
}

// errNoAnswer says that the person leaves a question open.
var errNoAnswer = errors.New("no answer")

// Ask asks a question and returns the answer; ok is false if the person leaves
// it open, with an empty line, the end of the input, or an interrupt. Then Ask
// prints command, which answers it later.
func (a *Asker) Ask(ctx context.Context, about string, q *api.Question, command string) (answer api.AnswerRequest, ok bool) {
	to := a.o.Stderr
	discardTyped(a.stdin)
	fmt.Fprintf(to, "%s asks:\n", Line(about))
	a.quote(q.Question)
	how := "answer"
	width, _ := a.o.Size()
	for i, o := range q.Options {
		option := fmt.Sprintf("  %d. %s", i+1, Line(o))
		if width > 0 {
			option = Cut(option, width) // a terminal would continue it without a marker
		}
		fmt.Fprintln(to, option)
		how = "answer, or a number"
	}
	if len(q.Context) > 0 {
		a.quote("context: " + string(q.Context))
	}
	for {
		fmt.Fprintf(to, "%s (empty: leave it open): ", how)
		text, err := a.line(ctx)
		switch n, notNumber := strconv.Atoi(text); {
		case err != nil:
			if !errors.Is(err, errNoAnswer) {
				fmt.Fprintln(to) // the cursor is behind the prompt
			}
			fmt.Fprintf(to, "the question stays open; answer it with: %s\n", Line(command))
			return answer, false
		case notNumber != nil || len(q.Options) == 0:
			return api.AnswerRequest{Text: text}, true
		case n >= 1 && n <= len(q.Options):
			return api.AnswerRequest{Option: n}, true
		default:
			fmt.Fprintf(to, "there is no option %d, the last one is %d\n", n, len(q.Options))
		}
	}
}

// quote shows what the agent wrote, every line behind its marker.
func (a *Asker) quote(text string) {
	l := NewAgentLog(a.o.Stderr, a.o.Stderr, AgentMarker, a.o.Width, 0)
	_ = errors.Join(l.Chunk(api.Chunk{Data: []byte(text)}), l.Close()) // closing the terminal ends the command
}

// line reads a line of the person.
func (a *Asker) line(ctx context.Context) (string, error) {
	select {
	case a.want <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	select {
	case l := <-a.lines:
		if l.text == "" && l.err == nil {
			l.err = errNoAnswer
		}
		if l.text != "" {
			l.err = nil // the last line of the input may lack its end
		}
		return l.text, l.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
