package broker

import (
	"bytes"
	"context"
	"strings"
)

// head is what net/http does not tell about the first request of a connection.
type head struct {
	host    string // its field Host
	problem string // why two readers may read it differently; empty if they cannot
}

// parseHead looks at the header at the start of b, which net/http then parses.
func parseHead(b []byte) (h head) {
	hosts, length, coding := 0, false, false
	for i, line := range bytes.SplitAfter(b, []byte("\n")) {
		text, whole := strings.CutSuffix(string(line), "\r\n")
		switch {
		case text == "" && whole:
			if length && coding {
				h.problem = "the request has both Content-Length and Transfer-Encoding"
			}
			if hosts > 1 {
				h.problem = "the request has more than one field Host"
			}
			return h
		case !whole || strings.ContainsAny(text, "\r\n\x00"):
			h.problem = "a line of the request's header does not end as HTTP wants"
		case i > 0 && (text[0] == ' ' || text[0] == '\t'):
			h.problem = "a field of the request's header is folded over two lines"
		}
		name, value, _ := strings.Cut(text, ":")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "host":
			h.host = strings.TrimSpace(value)
			hosts++
		case "content-length":
			length = true
		case "transfer-encoding":
			coding = true
		}
	}
	return h
}

// headOf returns the head of a request from the jail. Of a connection's later requests
// it is not known, which is a problem too.
func headOf(ctx context.Context) head {
	c, ok := ctx.Value(connKey{}).(*agentConn)
	if !ok || c.requests > 1 {
		return head{problem: "a request to a host must be the first on its connection to the proxy"}
	}
	return c.head
}
