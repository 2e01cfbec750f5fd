package httpguard

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
)

// verdict feeds text to framing in pieces of n bytes.
func verdict(text string, n int) error {
	f := newFraming()
	for b := []byte(text); len(b) > 0; {
		piece := b[:min(n, len(b))]
		if _, err := f.advance(piece); err != nil {
			return err
		}
		b = b[len(piece):]
	}
	return nil
}

const head = "POST /mcp HTTP/1.1\r\nHost: a\r\n"

// proves R-T3
func TestAmbiguousFramingIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"a length":                     {head + "Content-Length: 2\r\n\r\n{}", true},
		"two requests":                 {head + "Content-Length: 2\r\n\r\n{}" + head + "\r\n", true},
		"chunks":                       {head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + head + "\r\n", true},
		"no body":                      {head + "\r\n", true},
		"empty values, tabs":           {head + "X:\r\nY:\t a\tb \r\n\r\n", true},
		"an unknown field twice":       {head + "X: a\r\nX: b\r\n\r\n", true},
		"two equal lengths":            {head + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", false},
		"two lengths":                  {head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", false},
		"a list of lengths":            {head + "Content-Length: 2, 2\r\n\r\n{}", false},
		"a length with a sign":         {head + "Content-Length: +2\r\n\r\n{}", false},
		"a negative length":            {head + "Content-Length: -2\r\n\r\n{}", false},
		"an empty length":              {head + "Content-Length:\r\n\r\n", false},
		"a length beyond all":          {head + "Content-Length: 9223372036854775808\r\n\r\n", false},
		"a hexadecimal length":         {head + "Content-Length: 0x2\r\n\r\n{}", false},
		"length, then chunks":          {head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", false},
		"chunks, then length":          {head + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n", false},
		"chunks twice":                 {head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false},
		"chunks of something":          {head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", false},
		"identity":                     {head + "Transfer-Encoding: identity\r\n\r\n", false},
		"chunks in disguise":           {head + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", false},
		"a space before the colon":     {head + "Content-Length : 2\r\n\r\n{}", false},
		"a folded line":                {head + "X: a\r\n b\r\n\r\n", false},
		"a line feed alone":            {head + "X: a\nY: b\r\n\r\n", false},
		"a carriage return alone":      {head + "X: a\rY: b\r\n\r\n", false},
		"an end of line feeds":         {"POST /mcp HTTP/1.1\nHost: a\n\n", false},
		"a null byte":                  {head + "X: a\x00\r\n\r\n", false},
		"a byte beyond ASCII":          {head + "X: \xc3\xa4\r\n\r\n", false},
		"a name with an accent":        {head + "X\xc3: a\r\n\r\n", false},
		"no colon":                     {head + "X\r\n\r\n", false},
		"no name":                      {head + ": a\r\n\r\n", false},
		"no host":                      {"POST /mcp HTTP/1.1\r\n\r\n", false},
		"two hosts":                    {head + "Host: b\r\n\r\n", false},
		"two origins":                  {head + "Origin: http://a\r\nOrigin: http://b\r\n\r\n", false},
		"two tokens":                   {head + "Authorization: Bearer a\r\nauthorization: Bearer b\r\n\r\n", false},
		"two sessions":                 {head + "Mcp-Session-Id: a\r\nMcp-Session-Id: b\r\n\r\n", false},
		"two cookies":                  {head + "Cookie: a=1\r\nCookie: a=2\r\n\r\n", false},
		"two revisions":                {head + "MCP-Protocol-Version: 2025-06-18\r\nMcp-Protocol-Version: 2026-07-28\r\n\r\n", false},
		"an older version":             {"POST /mcp HTTP/1.0\r\nHost: a\r\n\r\n", false},
		"the preface of HTTP/2":        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false},
		"no version":                   {"POST /mcp\r\nHost: a\r\n\r\n", false},
		"a URL":                        {"POST http://a/mcp HTTP/1.1\r\nHost: a\r\n\r\n", false},
		"a tunnel":                     {"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", false},
		"two spaces":                   {"POST  /mcp HTTP/1.1\r\nHost: a\r\n\r\n", false},
		"a space in the path":          {"POST /m cp HTTP/1.1\r\nHost: a\r\n\r\n", false},
		"a method in lower case":       {"post /mcp HTTP/1.1\r\nHost: a\r\n\r\n", false},
		"an empty line first":          {"\r\n" + head + "\r\n", false},
		"a TLS greeting":               {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", false},
		"a chunk with an extension":    {head + "Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\n\r\n", false},
		"a chunk with a sign":          {head + "Transfer-Encoding: chunked\r\n\r\n+2\r\n{}\r\n0\r\n\r\n", false},
		"a chunk without a size":       {head + "Transfer-Encoding: chunked\r\n\r\n\r\n", false},
		"a chunk longer than its size": {head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}}\r\n0\r\n\r\n", false},
		"a size of line feeds":         {head + "Transfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n", false},
		"a size that is long":          {head + "Transfer-Encoding: chunked\r\n\r\n0000000002\r\n{}\r\n0\r\n\r\n", false},
		"trailers":                     {head + "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n", false},
		"announced trailers":           {head + "Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n0\r\n\r\n", false},
		"more header than fits":        {head + "X: " + strings.Repeat("a", MaxHead+headSlack) + "\r\n\r\n", false},
		"a second request that hides":  {head + "Content-Length: 2\r\n\r\n{}GET / HTTP/1.1\nHost: a\n\n", false},
	} {
		for _, n := range []int{1, 2, 3, 7, len(c.text)} {
			if err := verdict(c.text, n); (err == nil) != c.ok {
				t.Errorf("%s, %d bytes at a time: %v", name, n, err)
			}
		}
	}
}

// net/http finds the same requests in what framing accepts, each ending at the
// same byte.
//
// proves R-T3
func FuzzFraming(f *testing.F) {
	f.Add(head+"Content-Length: 2\r\n\r\n{}"+head+"\r\n", uint8(3))
	f.Add(head+"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"+head+"\r\n", uint8(1))
	f.Add(head+"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", uint8(1))
	f.Add(head+"Content-Length: 1\r\nContent-Length: 1\r\n\r\na", uint8(1))
	f.Fuzz(func(t *testing.T, text string, n uint8) {
		ours, err := ends(text)
		if in := verdict(text, int(n)+1); (in == nil) != (err == nil) {
			t.Fatalf("%q: %v as a whole, %v in pieces", text, err, in)
		}
		if err != nil {
			return
		}
		for i, end := range endsOfNetHTTP(text) {
			if i >= len(ours) || ours[i] != end {
				t.Fatalf("%q: requests end at %v, but request %d ends at %d for net/http", text, ours, i, end)
			}
		}
	})
}

// Control for FuzzFraming: net/http accepts requests that framing refuses.
func TestNetHTTPAcceptsAmbiguousFraming(t *testing.T) {
	for _, text := range []string{
		head + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
		head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"POST /mcp HTTP/1.1\nHost: a\nContent-Length: 2\n\n{}",
		head + "Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\n\r\n",
	} {
		if ours, err := ends(text); err == nil || len(ours) > 0 {
			t.Errorf("%q: accepted by framing", text)
		}
		if got := endsOfNetHTTP(text); len(got) != 1 {
			t.Errorf("%q: requests end at %v for net/http, want one request", text, got)
		}
	}
}

// ends returns where requests end according to framing.
func ends(text string) (at []int, err error) {
	f := newFraming()
	for i := range len(text) {
		if _, err := f.advance([]byte{text[i]}); err != nil {
			return at, err
		}
		if f.at == inHead && f.head == 0 {
			at = append(at, i+1)
		}
	}
	return at, nil
}

func endsOfNetHTTP(text string) (at []int) {
	source := strings.NewReader(text)
	r := bufio.NewReader(source)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return at
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return at
		}
		at = append(at, len(text)-source.Len()-r.Buffered())
	}
}
