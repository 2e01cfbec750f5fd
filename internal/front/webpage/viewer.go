package webpage

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
)

// number reads a number of a query. Absent it is otherwise.
func number(q url.Values, name string, otherwise, least, most int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, api.Errorf(api.CodeInvalid, "%s %.20q: want a number from %d to %d", name, text, least, most)
	}
	return n, nil
}

func decimal(n int) string { return strconv.Itoa(n) }

// linkWith is the address of a request with other members in its query; an empty value
// removes one.
func linkWith(r *http.Request, members ...string) string {
	q := given(r)
	for i := 0; i+1 < len(members); i += 2 {
		if q.Del(members[i]); members[i+1] != "" {
			q.Set(members[i], members[i+1])
		}
	}
	if len(q) == 0 {
		return r.URL.Path
	}
	return r.URL.Path + "?" + q.Encode()
}

// attachment answers with content of an agent as a download, which a browser must not
// show: if it did, the sandbox lets it run nothing.
func attachment(w http.ResponseWriter, r *http.Request, name string, fill func(context.Context, io.Writer) error) error {
	h := w.Header()
	policies := h.Get("Content-Security-Policy")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`) // of letters, digits and ._- only
	began := &began{Writer: w}
	err := fill(r.Context(), began)
	switch {
	case err == nil:
		return nil
	case began.written:
		panic(http.ErrAbortHandler) // the browser must not take a part for the whole
	}
	h.Del("Content-Disposition")
	h.Set("Content-Security-Policy", policies)
	return err
}

// began notes whether anything was written.
type began struct {
	io.Writer

	written bool
}

func (b *began) Write(p []byte) (int, error) {
	b.written = true
	return b.Writer.Write(p)
}
