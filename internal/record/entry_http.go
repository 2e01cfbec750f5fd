package record

import "fmt"

// HTTPAsked is the detail of KindHTTPAsked. The entry is of whose account the
// program runs under; that it is there is the answer to half of the question.
type HTTPAsked struct {
	Token bool `json:"token"` // a client token is good: the program may go on
}

func (d HTTPAsked) bound(*bounds) Detail { return d }

func (d HTTPAsked) say(e *Entry) string {
	if !d.Token {
		return fmt.Sprintf("%s asked to serve the tools over HTTP: no client token is good", e.who())
	}
	return fmt.Sprintf("%s asked to serve the tools over HTTP", e.who())
}
