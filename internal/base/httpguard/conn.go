package httpguard

import "net"

// Conn is a client connection. It passes on only requests whose framing is
// unambiguous.
type Conn struct {
	net.Conn // plain, or TLS

	// net/http reads from one goroutine at a time.
	framing *framing
	refused error
}

// NewConn returns raw with the framing filter before its reader.
func NewConn(raw net.Conn) *Conn { return &Conn{Conn: raw, framing: newFraming()} }

// Read returns an error at the byte where the request becomes ambiguous.
// net/http answers 400 when it reaches that request.
func (c *Conn) Read(p []byte) (int, error) {
	if c.refused != nil {
		return 0, c.refused
	}
	n, err := c.Conn.Read(p)
	if accepted, bad := c.framing.advance(p[:n]); bad != nil {
		c.refused = bad
		if accepted == 0 {
			return 0, bad
		}
		return accepted, nil
	}
	return n, err
}

// CloseWrite lets net/http deliver an error response before it closes.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
