package scriptmodel

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

type object = map[string]any

// wire is one wire format.
type wire interface {
	api() api.ModelAPI
	parse(body []byte) (*Turn, error)
	document(*Turn, *Reply) object
	events(*Turn, *Reply) iter.Seq[event]
	last() string // what follows the last event
	failure(status int, message string) object
}

// event is a server-sent event. Tokens is the usage that the response has reported up to
// and including it.
type event struct {
	data   object // its member "type", if there is one, also names it
	tokens api.Tokens
}

// output writes one response, with the faults of a reply.
type output struct {
	http.ResponseWriter

	ctx  context.Context
	wait time.Duration
	cut  int // bytes left; negative: no cut
	soft bool
	done func(status int, n api.Tokens, broken bool)

	status int
	tokens api.Tokens // of what was sent
	broken bool
}

func (o *output) obey(r *Reply) {
	o.wait, o.cut, o.soft = r.Wait, -1, r.Early
	if r.Cut > 0 {
		o.cut = r.Cut
	}
}

// close records the response, and breaks the connection off if the response is
// incomplete, unless the reply says otherwise.
func (o *output) close() {
	o.done(o.status, o.tokens, o.broken)
	if o.broken && !o.soft {
		panic(http.ErrAbortHandler)
	}
}

// send writes b up to the cut, and reports whether all of b was written. A cut inside the
// blank line that ends an event moves behind it, so that it is clear what was sent.
func (o *output) send(b []byte) bool {
	if o.wait > 0 {
		pause, cancel := context.WithTimeout(o.ctx, o.wait)
		<-pause.Done()
		cancel()
	}
	if o.ctx.Err() != nil {
		o.broken = true
		return false
	}
	all := true
	if o.cut >= 0 && len(b) >= o.cut {
		o.broken = true
		if o.cut < len(b)-2 {
			b, all = b[:o.cut], false
		}
	}
	if o.cut >= 0 {
		o.cut = max(0, o.cut-len(b))
	}
	_, err := o.Write(b)
	if err == nil {
		err = http.NewResponseController(o.ResponseWriter).Flush()
	}
	if err != nil {
		o.broken = true
	}
	return all && err == nil
}

func (o *output) head(status int, kind string) {
	o.status = status
	o.Header().Set("Content-Type", kind)
	o.WriteHeader(status)
}

// fail responds with an error in the form of a format, which may be nil.
func (o *output) fail(format wire, status int, message string) {
	v := object{"error": message}
	if format != nil {
		v = format.failure(status, message)
	}
	o.cut = -1
	o.head(status, "application/json")
	o.send(encoded(v))
}

// whole responds with one document.
func (o *output) whole(v object, n api.Tokens) {
	o.head(http.StatusOK, "application/json")
	if o.send(encoded(v)) {
		o.tokens = n
	}
}

// stream responds with server-sent events. The usage in an event counts once its data
// was sent.
func (o *output) stream(events iter.Seq[event], last string) {
	o.head(http.StatusOK, "text/event-stream")
	for e := range events {
		var text []byte
		if name, ok := e.data["type"].(string); ok {
			text = append(text, "event: "+name+"\n"...)
		}
		text = append(append(text, "data: "...), encoded(e.data)...)
		if o.send(append(text, "\n\n"...)) {
			o.tokens = e.tokens
		}
		if o.broken {
			return
		}
	}
	if last != "" {
		o.send([]byte(last))
	}
}

func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // documents of this package, with arguments that a test made
	}
	return b
}

// textOf is the text of a content that is a string or a list of parts.
func textOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	if json.Unmarshal(raw, &parts) != nil {
		return string(raw)
	}
	for _, p := range parts {
		text += p.Text
	}
	return text
}
