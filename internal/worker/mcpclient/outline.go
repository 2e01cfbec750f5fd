package mcpclient

import (
	"bytes"
	"strconv"
)

// outline finds which request a message answers that is too long or not strict JSON. It
// takes one step for each byte, and keeps at most maxOutlined bytes of the message. Of a
// broken message it may find a part of the truth, or nothing.
type outline struct {
	size    int    // bytes so far
	first   byte   // that is not white space
	depth   int    // of objects and arrays
	text    bool   // inside a string
	escaped bool   // behind a backslash
	token   []byte // the current token of the outermost object
	name    string // of its current member
	ids     int    // members with the name id
	id      int64  // value of the last one; 0: not a whole number
	method  bool   // it has a method, so it is no answer
}

// maxOutlined is longer than any name and id that outline looks for.
const maxOutlined = 32

// add takes the next part of the message.
func (o *outline) add(part []byte) {
	o.size += len(part)
	if start := bytes.TrimLeft(part, " \t\r\n"); o.first == 0 && len(start) > 0 {
		o.first = start[0]
	}
	for _, c := range part {
		switch {
		case o.text:
			o.keep(c)
			o.text = o.escaped || c != '"'
			o.escaped = !o.escaped && c == '\\'
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		case c == '"':
			o.keep(c)
			o.text = true
		case c == ':' && o.depth == 1:
			o.name, o.token = string(o.token), o.token[:0]
			o.method = o.method || o.name == `"method"`
		case c == ',' || c == '}' || c == ']':
			o.member()
			if c != ',' {
				o.depth--
			}
		case c == '{' || c == '[':
			o.depth++
		default:
			o.keep(c)
		}
	}
}

func (o *outline) keep(c byte) {
	if o.depth == 1 && len(o.token) < maxOutlined {
		o.token = append(o.token, c)
	}
}

// member ends a member of the outermost object.
func (o *outline) member() {
	if o.depth != 1 {
		return
	}
	if o.name == `"id"` {
		o.ids++
		var err error
		if o.id, err = strconv.ParseInt(string(o.token), 10, 64); err != nil {
			o.id = 0
		}
	}
	o.name, o.token = "", o.token[:0]
}

// answers returns the id of the request that the message answers; 0 if it does not say.
func (o *outline) answers() int64 {
	if !o.mayAnswer() || o.ids != 1 {
		return 0
	}
	return o.id
}

// mayAnswer reports whether the message may be an answer, whatever its id.
func (o *outline) mayAnswer() bool { return o.first == '{' && !o.method }
