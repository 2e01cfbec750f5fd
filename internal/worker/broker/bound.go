package broker

import "time"

// bounds are those of one attempt. docs/agent-contract.md lists them.
type bounds struct {
	conns        int           // from the jail at once; more wait until one ends
	active       int           // requests at once, also of HTTP/2; more wait
	requests     int64         // of the attempt
	hostRequests int64         // to one host and port
	hostBytes    int64         // with one host and port, both directions together
	head         time.Duration // to send a header, a ClientHello or a handshake
	idle         time.Duration // without a byte in either direction, or between requests
	write        time.Duration // for a reader to take what is written at once
	drain        time.Duration // for the model to end its answers after the agent has ended
}

func defaultBounds() bounds {
	return bounds{
		conns: 256, active: 512, requests: 100_000, hostRequests: 50_000, hostBytes: 64 << 30,
		head: 30 * time.Second, idle: 5 * time.Minute, write: 15 * time.Minute, drain: 30 * time.Second,
	}
}

// Bounds in bytes.
const (
	maxHead  = 64 << 10 // of a request's header
	maxHello = 64 << 10 // of a TLS ClientHello
	maxField = 1 << 20  // of a body with a secret in a field
	maxWhole = 64 << 10 // of a body that is scanned whole before the first byte of it is sent
	maxPath  = 512      // of a path or an error in the record
)

// maxFields is how many requests to hosts with a secret in a field are served at once:
// their bodies are held in memory. More wait.
const maxFields = 32
