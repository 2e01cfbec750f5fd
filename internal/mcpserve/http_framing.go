package mcpserve

import (
	"errors"
	"strconv"
	"strings"
)

// framing follows the bytes of one HTTP/1.1 connection and says where a
// request could be read in two ways, which is what request smuggling lives on.
// net/http accepts some of it: two equal Content-Lengths, a Content-Length
// beside a Transfer-Encoding, lines that end without a carriage return. What
// is refused never gets as far as the end of its header, so nobody has parsed
// it (R-T3).
type framing struct {
	at    place
	line  []byte          // the line so far, where at is a line
	head  int             // bytes of this header
	seen  map[string]bool // of the names in single; of this header
	first bool            // the line is the request line

	length  int64 // Content-Length; -1: none
	chunked bool
	left    int64 // of the body or the chunk
}

type place int

const (
	inHead      place = iota
	inBody            // left bytes
	inChunkSize       // the line before a chunk
	inChunk           // left bytes
	inChunkEnd        // the line behind a chunk
	inLastLine        // the line behind the last chunk: trailers are refused
)

const (
	// maxHead is where net/http answers 431.
	maxHead = 32 << 10
	// headSlack is what net/http may have read ahead when it does.
	headSlack = 4 << 10
	// maxChunkDigits keeps the size of a chunk within an int64.
	maxChunkDigits = 8
)

var errFraming = errors.New("the request can be read in more than one way")

func newFraming() *framing {
	f := &framing{}
	f.begin()
	return f
}

// begin expects a request.
func (f *framing) begin() {
	*f = framing{at: inHead, line: f.line[:0], seen: map[string]bool{}, first: true, length: -1}
}

// take follows b and returns how many bytes of it may be passed on: all, or
// with an error those before what is refused.
func (f *framing) take(b []byte) (int, error) {
	for i := 0; i < len(b); {
		if f.at == inBody || f.at == inChunk {
			n := min(f.left, int64(len(b)-i))
			f.left, i = f.left-n, i+int(n)
			f.passed()
			continue
		}
		if err := f.takeByte(b[i]); err != nil {
			return i, err
		}
		i++
	}
	return len(b), nil
}

// passed goes on behind a body or a chunk.
func (f *framing) passed() {
	switch {
	case f.left > 0:
	case f.at == inBody:
		f.begin()
	default:
		f.at = inChunkEnd
	}
}

// takeByte follows one byte of a line.
func (f *framing) takeByte(c byte) error {
	if f.at == inHead {
		if f.head++; f.head > maxHead+headSlack {
			return errFraming
		}
	}
	ended := len(f.line) > 0 && f.line[len(f.line)-1] == '\r'
	switch {
	case c == '\n' && ended:
		line := string(f.line[:len(f.line)-1])
		f.line = f.line[:0]
		return f.takeLine(line)
	case ended, c == '\n', c < ' ' && c != '\t' && c != '\r', c >= 0x7f:
		return errFraming
	case f.at != inHead && len(f.line) > maxChunkDigits:
		return errFraming
	}
	f.line = append(f.line, c)
	return nil
}

func (f *framing) takeLine(line string) error {
	switch {
	case f.at == inChunkSize:
		return f.chunk(line)
	case f.at == inChunkEnd && line == "":
		f.at = inChunkSize
		return nil
	case f.at == inLastLine && line == "":
		f.begin()
		return nil
	case f.at != inHead:
		return errFraming
	case f.first:
		f.first = false
		return requestLine(line)
	case line == "":
		return f.endHead()
	}
	return f.field(line)
}

// requestLine wants a method, a path and the one version that there is.
func requestLine(line string) error {
	method, rest, _ := strings.Cut(line, " ")
	target, version, _ := strings.Cut(rest, " ")
	if method == "" || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || !strings.HasPrefix(target, "/") || version != "HTTP/1.1" || strings.ContainsRune(target, '\t') {
		return errFraming
	}
	return nil
}

// single are the fields that mean something here, so that two of them could
// mean two things.
func single(name string) bool {
	switch name {
	case "authorization", "connection", "content-encoding", "content-length", "content-type", "expect", "host", "mcp-method", "mcp-name",
		"mcp-protocol-version", "mcp-session-id", "origin", "sec-fetch-site", "te", "trailer", "transfer-encoding", "upgrade":
		return true
	}
	return false
}

const nameBytes = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"

func (f *framing) field(line string) error {
	name, value, ok := strings.Cut(line, ":")
	name = strings.ToLower(name)
	if !ok || name == "" || strings.Trim(name, nameBytes) != "" { // also a line that continues the one before
		return errFraming
	}
	if !single(name) {
		return nil
	}
	if f.seen[name] {
		return errFraming
	}
	f.seen[name] = true
	value = strings.Trim(value, " \t")
	switch name {
	case "content-length":
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil || strings.Trim(value, "0123456789") != "" {
			return errFraming
		}
		f.length = int64(n) //nolint:gosec // G115: 63 bits
	case "transfer-encoding":
		if !strings.EqualFold(value, "chunked") {
			return errFraming
		}
		f.chunked = true
	case "trailer":
		return errFraming // there is nothing behind a body
	}
	return nil
}

// endHead decides where the body ends.
func (f *framing) endHead() error {
	switch {
	case !f.seen["host"], f.chunked && f.length >= 0:
		return errFraming
	case f.chunked:
		f.at = inChunkSize
	case f.length > 0:
		f.at, f.left = inBody, f.length
	default:
		f.begin()
	}
	return nil
}

// chunk reads the size of a chunk: hexadecimal digits and no extension.
func (f *framing) chunk(line string) error {
	n, err := strconv.ParseUint(line, 16, 4*maxChunkDigits)
	if err != nil || strings.Trim(line, "0123456789abcdefABCDEF") != "" {
		return errFraming
	}
	if f.at, f.left = inChunk, int64(n); n == 0 { //nolint:gosec // G115: 32 bits
		f.at = inLastLine
	}
	return nil
}
