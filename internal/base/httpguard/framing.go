package httpguard

import (
	"errors"
	"strconv"
	"strings"
)

// framing follows the bytes of one HTTP/1.1 connection and refuses ambiguous
// requests, which request smuggling depends on. net/http accepts some of them:
// two equal Content-Lengths, a Content-Length beside a Transfer-Encoding, lines
// that end without a carriage return. A refused request never reaches the end of
// its header, so nothing has parsed it (R-T3).
type framing struct {
	at    position
	line  []byte          // the line so far, unless at is inBody or inChunk
	head  int             // bytes of this header so far
	seen  map[string]bool // fields of this header that may occur once
	first bool            // line is the request line

	length  int64 // Content-Length; -1: none
	chunked bool
	left    int64 // bytes left of the body or chunk
}

type position int

const (
	inHead      position = iota
	inBody               // left bytes
	inChunkSize          // the line before a chunk
	inChunk              // left bytes
	inChunkEnd           // the line after a chunk
	inLastLine           // the line after the last chunk; trailers are refused
)

const (
	// MaxHead is the header size in bytes beyond which net/http answers 431.
	MaxHead = 32 << 10
	// MaxHeaderBytes makes net/http answer 431 at MaxHead: it allows headSlack more than
	// it is configured with.
	MaxHeaderBytes = MaxHead - headSlack
	// headSlack is how far net/http may have read ahead by then.
	headSlack = 4 << 10
	// maxChunkDigits keeps the size of a chunk within an int64.
	maxChunkDigits = 8
)

var errFraming = errors.New("ambiguous request framing")

func newFraming() *framing {
	f := &framing{}
	f.begin()
	return f
}

// begin expects a new request.
func (f *framing) begin() {
	*f = framing{at: inHead, line: f.line[:0], seen: map[string]bool{}, first: true, length: -1}
}

// advance follows b and returns how many of its bytes are accepted: all, or with
// an error those before the refused one.
func (f *framing) advance(b []byte) (int, error) {
	for i := 0; i < len(b); {
		if f.at == inBody || f.at == inChunk {
			n := min(f.left, int64(len(b)-i))
			f.left, i = f.left-n, i+int(n)
			f.endPart()
			continue
		}
		if err := f.addByte(b[i]); err != nil {
			return i, err
		}
		i++
	}
	return len(b), nil
}

// endPart moves on if the body or chunk is complete.
func (f *framing) endPart() {
	switch {
	case f.left > 0:
	case f.at == inBody:
		f.begin()
	default:
		f.at = inChunkEnd
	}
}

// addByte adds one byte to the line.
func (f *framing) addByte(c byte) error {
	if f.at == inHead {
		if f.head++; f.head > MaxHead+headSlack {
			return errFraming
		}
	}
	ended := len(f.line) > 0 && f.line[len(f.line)-1] == '\r'
	switch {
	case c == '\n' && ended:
		line := string(f.line[:len(f.line)-1])
		f.line = f.line[:0]
		return f.endLine(line)
	case ended, c == '\n', c < ' ' && c != '\t' && c != '\r', c >= 0x7f:
		return errFraming
	case f.at != inHead && len(f.line) > maxChunkDigits:
		return errFraming
	}
	f.line = append(f.line, c)
	return nil
}

func (f *framing) endLine(line string) error {
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
		return checkRequestLine(line)
	case line == "":
		return f.endHead()
	}
	return f.field(line)
}

// checkRequestLine requires a method, a path and HTTP/1.1.
func checkRequestLine(line string) error {
	method, rest, _ := strings.Cut(line, " ")
	target, version, _ := strings.Cut(rest, " ")
	if method == "" || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || !strings.HasPrefix(target, "/") || version != "HTTP/1.1" || strings.ContainsRune(target, '\t') {
		return errFraming
	}
	return nil
}

// single reports whether a field has a meaning here, so that a second one would
// be ambiguous.
func single(name string) bool {
	switch name {
	case "authorization", "connection", "content-encoding", "content-length", "content-type", "cookie", "expect", "host", "mcp-method", "mcp-name",
		"mcp-protocol-version", "mcp-session-id", "origin", "sec-fetch-dest", "sec-fetch-mode", "sec-fetch-site", "te", "trailer", "transfer-encoding", "upgrade":
		return true
	}
	return false
}

const nameBytes = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"

func (f *framing) field(line string) error {
	name, value, ok := strings.Cut(line, ":")
	name = strings.ToLower(name)
	if !ok || name == "" || strings.Trim(name, nameBytes) != "" { // also refuses folded lines
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
		return errFraming
	}
	return nil
}

// endHead determines where the body ends.
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

// chunk reads the size of a chunk: hexadecimal digits, no extension.
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
