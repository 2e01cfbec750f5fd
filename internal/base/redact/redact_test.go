package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// encodings are what an honest program may make of a value.
func encodings() map[string]func(string) string {
	quoted := func(v any) string {
		b, _ := json.Marshal(v)
		return string(b[1 : len(b)-1])
	}
	all := map[string]func(string) string{
		"plain": func(s string) string { return s },
		"hex":   func(s string) string { return hex.EncodeToString([]byte(s)) },
		"HEX":   func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
		"xxd":   func(s string) string { return fmt.Sprintf("% x", s) },
		"dump":  func(s string) string { return strings.ReplaceAll(fmt.Sprintf("% X", s), " ", ":") },
		"query": url.QueryEscape,
		"path":  url.PathEscape,
		"percent": func(s string) string {
			var b strings.Builder
			for i := range len(s) {
				fmt.Fprintf(&b, []string{"%%%02x", "%%%02X"}[i%2], s[i])
			}
			return b.String()
		},
		"HTML": html.EscapeString,
		"HTML, decimal": func(s string) string {
			var b strings.Builder
			for _, r := range s {
				fmt.Fprintf(&b, "&#%d;", r)
			}
			return b.String()
		},
		"HTML, some": func(s string) string {
			return strings.NewReplacer("a", "&#x61;", "e", "&#X65;", "+", "&plus;", "_", "&lowbar;", "&", "&amp;").Replace(s)
		},
		"HTML in JSON": func(s string) string { return quoted(html.EscapeString(s)) },
		"JSON":         func(s string) string { return quoted(s) },
		"JSON in JSON": func(s string) string { return quoted(quoted(s)) },
		"JSON without HTML": func(s string) string {
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			_ = e.Encode(s)
			return b.String()[1 : b.Len()-2]
		},
		"JavaScript": func(s string) string { return strings.ReplaceAll(quoted(s), "/", `\/`) },
		"UTF-16 escapes": func(s string) string {
			var b strings.Builder
			for _, r := range s {
				if r > 0xffff {
					r -= 0x10000
					fmt.Fprintf(&b, `\u%04X\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
					continue
				}
				fmt.Fprintf(&b, `\u%04x`, r)
			}
			return b.String()
		},
		"bytes escaped": func(s string) string {
			var b strings.Builder
			for i := range len(s) {
				fmt.Fprintf(&b, `\x%02x`, s[i])
			}
			return b.String()
		},
	}
	for name, alphabet := range map[string]*base64.Encoding{
		"standard": base64.StdEncoding, "URL": base64.URLEncoding,
		"standard unpadded": base64.RawStdEncoding, "URL unpadded": base64.RawURLEncoding,
	} {
		for phase := range 3 {
			before := strings.Repeat("\x00", phase)
			all[fmt.Sprintf("base64 %s, phase %d", name, phase)] = func(s string) string { return alphabet.EncodeToString([]byte(before + s)) }
			all[fmt.Sprintf("base64 %s, phase %d, in a text", name, phase)] = func(s string) string {
				return alphabet.EncodeToString([]byte(before + s + "and more"))
			}
			all[fmt.Sprintf("base64 %s, phase %d, lines", name, phase)] = func(s string) string { return wrap(alphabet.EncodeToString([]byte(before+s)), "\n") }
			all[fmt.Sprintf("base64 %s, phase %d, lines in JSON", name, phase)] = func(s string) string {
				return wrap(alphabet.EncodeToString([]byte(before+s)), `\r\n`)
			}
		}
	}
	return all
}

func wrap(s, end string) string {
	var b strings.Builder
	for len(s) > 7 {
		b.WriteString(s[:7] + end)
		s = s[7:]
	}
	return b.String() + s
}

// core is the part of an encoding that the value alone decides: it must be gone.
func core(encoded string) string {
	return encoded[2 : len(encoded)-3]
}

// TestNoFormOfAValueRemains has its control in each check: what must be gone is in the
// text before.
//
// proves R-D8
func TestNoFormOfAValueRemains(t *testing.T) {
	t.Parallel()
	values := []string{
		"sk-ant-0123456789abcdef",
		`a"b\c/d<e>&f` + "\n\tg",
		"pässwörd 😀 with spaces+plus%41",
		"\x00\xff\xfe\x80raw bytes\x01",
		"-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ\n-----END KEY-----\n",
		"eightchr",
	}
	set := New(values)
	for _, v := range values {
		for name, encode := range encodings() {
			if name == "UTF-16 escapes" && strings.Contains(v, "\xff") || strings.HasPrefix(name, "JSON") && strings.Contains(v, "\xff") || strings.HasPrefix(name, "HTML") && strings.Contains(v, "\xff") || name == "JavaScript" && strings.Contains(v, "\xff") {
				continue // not text
			}
			encoded := encode(v)
			text := "before «" + encoded + "» after"
			if !strings.Contains(text, core(encoded)) {
				t.Fatalf("%s of %q: the control does not find it", name, v)
			}
			if got := set.Text(text); strings.Contains(got, core(encoded)) || !strings.Contains(got, Mark) {
				t.Errorf("%s of %q: %q became %q", name, v, text, got)
			} else if !strings.HasPrefix(got, "before «") || !strings.HasSuffix(got, "» after") {
				t.Errorf("%s of %q took from around it: %q", name, v, got)
			}
		}
	}
}

func TestRedactionIsExact(t *testing.T) {
	t.Parallel()
	set := New([]string{"secret-one", "secret-one-longer", "one-longer-still", "short", ""})
	for text, want := range map[string]string{
		"":                                  "",
		"nothing":                           "nothing",
		"secret-on":                         "secret-on",
		"short":                             "short",
		"secret-one":                        Mark,
		"xsecret-oney":                      "x" + Mark + "y",
		"secret-one-longer":                 Mark,
		"secret-one-longer-still!":          Mark + "!",
		"secret-onesecret-one":              Mark + Mark,
		"secret-secret-one":                 "secret-" + Mark,
		"%73ecret-one %7":                   Mark + " %7",
		`\`:                                 `\`,
		`\u00`:                              `\u00`,
		`\ud83d\u`:                          `\ud83d\u`,
		`\\u0073ecret-one`:                  Mark,
		`\\\u0073ecret-one`:                 `\\` + Mark,
		"c2VjcmV0LW9uZQ==":                  Mark,
		"c2VjcmV0LW9uZQ":                    Mark,
		"c2Vjcm" + strings.Repeat("\n", 17): "c2Vjcm" + strings.Repeat("\n", 17),
	} {
		got, found := set.Bytes([]byte(text))
		if string(got) != want || found != strings.Contains(want, Mark) {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	if got := New(nil).Text("secret-one"); got != "secret-one" {
		t.Errorf("a set without values changed a text to %q", got)
	}
}

func TestWriterHoldsBackOnlyWhatMayBeAValue(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := New([]string{"secret-one"}).Writer(&out)
	for _, step := range []struct{ in, out string }{
		{"line\n", "line\n"}, {"a secr", "line\na "}, {"et!", "line\na secret!"}, {"secret-one", "line\na secret!"}, {".", "line\na secret!" + Mark + "."},
	} {
		if _, err := w.Write([]byte(step.in)); err != nil || out.String() != step.out {
			t.Fatalf("after %q: %q, %v, want %q", step.in, &out, err, step.out)
		}
	}
	if err := w.Close(); err != nil || !w.Redacted() {
		t.Fatal(err, w.Redacted())
	}
}

// TestMemoryIsBounded writes texts that may be parts of a value from end to end.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"aaaaaaaa", "a ", "%", `\`, `\u`, " "} {
		var out bytes.Buffer
		w := New([]string{strings.Repeat("a", 16), "%%%%%%%%%", `\\\\\\\\`}).Writer(&out)
		line := []byte(strings.Repeat(text, 4096))
		for range 64 {
			if _, err := w.Write(line); err != nil {
				t.Fatal(err)
			}
			if len(w.text) > 2*16*maxGap*6 || len(w.matches) > 64 || cap(w.text) > 4*chunk {
				t.Fatalf("%q: holds %d bytes of text and %d matches", text, len(w.text), len(w.matches))
			}
		}
	}
}

// TestChunksChangeNothing compares a stream written in chunks with the same in one
// piece, and sweeps it for the values.
func TestChunksChangeNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[ab%\\n"+ -]{8,12}`)
		values := rapid.SliceOfN(value, 1, 3).Draw(t, "values")
		all := encodings()
		names := slices.Sorted(maps.Keys(all))
		var text strings.Builder
		for range rapid.IntRange(1, 5).Draw(t, "parts") {
			text.WriteString(rapid.StringMatching(`[ab%\\n"+ u0x-]{0,20}`).Draw(t, "noise"))
			v := rapid.SampledFrom(values).Draw(t, "value")
			text.WriteString(all[rapid.SampledFrom(names).Draw(t, "encoding")](v))
		}
		checkChunks(t, values, text.String(), rapid.IntRange(1, 9).Draw(t, "size"))
	})
}

type failer interface {
	Fatalf(format string, args ...any)
}

func checkChunks(t failer, values []string, text string, size int) {
	set := New(values)
	whole, found := set.Bytes([]byte(text))
	var out bytes.Buffer
	w := set.Writer(&out)
	for rest := text; rest != ""; {
		n := min(size, len(rest))
		_, _ = w.Write([]byte(rest[:n]))
		rest = rest[n:]
	}
	_ = w.Close()
	if out.String() != string(whole) || w.Redacted() != found {
		t.Fatalf("%q in chunks of %d became %q, in one %q", text, size, &out, whole)
	}
	for _, v := range values {
		if len(v) < MinLength || strings.Contains(Mark, v) {
			continue
		}
		for part := range strings.SplitSeq(out.String(), Mark) {
			if strings.Contains(part, v) {
				t.Fatalf("%q kept %q: %q", text, v, &out)
			}
		}
	}
	if !found && out.String() != text {
		t.Fatalf("%q became %q without a value", text, &out)
	}
}

func FuzzChunks(f *testing.F) {
	f.Add("secret-one", "secret-two", "xsecret-one%73ecret-two c2Vj\ncmV0LW9uZQ==", 3)
	f.Add(`a"b\\c\n12`, "bbbbbbbb", `a\"b\\\\c\\n12\u0062bbbbbbbb`, 1)
	f.Fuzz(func(t *testing.T, a, b, text string, size int) {
		if len(a)+len(b) > 1000 || len(text) > 10_000 {
			return
		}
		checkChunks(t, []string{a, b}, text, max(1, size%64))
	})
}

func BenchmarkWriter(b *testing.B) {
	text := []byte(strings.Repeat("2026-11-22T20:05:00Z info the quick brown fox jumps over the lazy dog, id=0193af\n", 1000))
	set := New([]string{"sk-ant-0123456789abcdef0123456789abcdef", "placeholder-0123456789abcdef", "ghp_0123456789abcdef0123456789abcdef"})
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		set.Bytes(text)
	}
}

// A key in PEM is found line by line too, as in a patch, where each line has a sign.
// Its header is no secret.
func TestEachLineOfAValueIsFound(t *testing.T) {
	t.Parallel()
	const body, last = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ", "a1b2c3d4=="
	set := New([]string{"-----BEGIN PRIVATE KEY-----\n" + body + "\n" + last + "\n-----END PRIVATE KEY-----\n"})
	patch := "+-----BEGIN PRIVATE KEY-----\n+" + body + "\n+" + last + "\n+-----END PRIVATE KEY-----\n"
	if got := set.Text(patch); got != "+-----BEGIN PRIVATE KEY-----\n+"+Mark+"\n+"+Mark+"\n+-----END PRIVATE KEY-----\n" {
		t.Errorf("%q", got)
	}
}

func TestInReadsNoMoreThanItHasTo(t *testing.T) {
	t.Parallel()
	set := New([]string{"secret-one"})
	if !New(nil).Empty() || set.Empty() {
		t.Error("Empty")
	}
	broken := errors.New("broken")
	for text, want := range map[string]bool{"": false, "secret-on": false, "a secret-one": true, "73 65 63 72 65 74 2d 6f 6e 65": true} {
		if got, err := set.In(strings.NewReader(text)); got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if got, err := set.In(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken))); got != want || want == (err != nil) {
			t.Errorf("%q before a fault: %v, %v", text, got, err)
		}
	}
}
