package mcpserve

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/mcpwire"
)

// An accepted message is canonical and means the same to the SDK; a refused one is
// answered with a JSON-RPC error.
func FuzzParseMessage(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"x","arguments":{}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `[{}]`, `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `{"id":1,"id":2}`, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"consentCeiling":1}}`, "\xff", `{"a":"\ud800"}`,
		`{"jsonrpC":"2.0","method":"x"}`, `{"jsonrpc":"2.0","ID":1,"Method":"tools/call","method":"ping"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := ParseMessage(raw)
		if err != nil {
			var wire *jsonrpc.Error
			var answer struct {
				ID    json.RawMessage
				Error struct{ Code int64 }
			}
			if !errors.As(err, &wire) || json.Unmarshal(mcpwire.ErrorResponse(raw, err), &answer) != nil || answer.Error.Code != wire.Code || wire.Code == 0 {
				t.Fatalf("%q is refused with %v but answered with %s", raw, err, mcpwire.ErrorResponse(raw, err))
			}
			return
		}
		text := m.Text
		again, err := canon.Canonicalize(raw)
		if err != nil || !bytes.Equal(text, again) {
			t.Fatalf("%q is accepted as %q", raw, text)
		}
		msg, err := jsonrpc.DecodeMessage(text)
		if err != nil {
			t.Fatalf("%q is accepted, but the SDK refuses it: %v", raw, err)
		}
		switch msg := msg.(type) {
		case *jsonrpc.Request:
			if msg.Method != m.Method || msg.IsCall() != (m.ID != nil) {
				t.Fatalf("%q is a different request to the SDK", raw)
			}
			if msg.IsCall() && !slices.Contains(mcpwire.Methods(), msg.Method) {
				t.Fatalf("%q is accepted", raw)
			}
		case *jsonrpc.Response:
			if m.Method != "" {
				t.Fatalf("%q is a response to the SDK", raw)
			}
		}
	})
}

// Lines are complete however the input is chunked; one that is too long is skipped,
// and the next is complete.
func TestReadLineSplitsAnyChunking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 2, 4095, 4096, 4097, 65536, mcpwire.MaxMessage - 1, mcpwire.MaxMessage, mcpwire.MaxMessage + 1, mcpwire.MaxMessage + 5, 2 * mcpwire.MaxMessage}), 1, 6).Draw(t, "sizes")
		end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end")
		last := rapid.Bool().Draw(t, "last line ends")
		var in bytes.Buffer
		for i, n := range sizes {
			in.WriteString(strings.Repeat(string(rune('a'+i)), n))
			if last || i < len(sizes)-1 {
				in.WriteString(end)
			}
		}
		var source io.Reader = bytes.NewReader(in.Bytes())
		if rapid.Bool().Draw(t, "halves") {
			source = iotest.HalfReader(source)
		}
		r := bufio.NewReaderSize(source, 4096)
		for i, n := range sizes {
			if !last && i == len(sizes)-1 && n == 0 {
				break // no line
			}
			text, err := readLine(r)
			text = bytes.TrimRight(text, "\r\n")
			switch {
			case n > mcpwire.MaxMessage+2 && !errors.Is(err, errTooLong):
				t.Fatalf("line %d of %d bytes: %d bytes, %v", i, n, len(text), err)
			case n <= mcpwire.MaxMessage && (err != nil || string(text) != strings.Repeat(string(rune('a'+i)), n)):
				t.Fatalf("line %d of %d bytes: %d bytes, %v", i, n, len(text), err)
			case n > mcpwire.MaxMessage && err == nil:
				if _, err := ParseMessage(text); err == nil {
					t.Fatalf("line %d of %d bytes is accepted", i, n)
				}
			}
		}
		if _, err := readLine(r); !errors.Is(err, io.EOF) {
			t.Fatalf("after the last line: %v", err)
		}
	})
}

// A request without an id is not ignored, and one without params gets an error with
// a code.
func TestIncompleteRequestsAreRefused(t *testing.T) {
	for text, code := range map[string]int64{
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"bailiwick_dispatch","arguments":{}}}`: jsonrpc.CodeInvalidRequest,
		`{"jsonrpc":"2.0","method":"initialize","params":{}}`:                                           jsonrpc.CodeInvalidRequest,
		`{"jsonrpc":"2.0","method":"ping"}`:                                                             jsonrpc.CodeInvalidRequest,
		`{"jsonrpc":"2.0","id":1,"method":"initialize"}`:                                                jsonrpc.CodeInvalidParams,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":null}`:                                  jsonrpc.CodeInvalidParams,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":null}`:                                  jsonrpc.CodeInvalidParams,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`:                                                0,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}`:                                  0,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`:                                        0,
	} {
		_, err := ParseMessage([]byte(text))
		var wire *jsonrpc.Error
		if code == 0 && err == nil || errors.As(err, &wire) && wire.Code == code {
			continue
		}
		t.Errorf("%s: %v", text, err)
	}
}
