package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// request is a request of the agent to t that the broker passes on. own are the
// secrets for t.
type request struct {
	v   *vault
	t   target
	own []held
}

// check finds placeholders in text, which is called what. Those that allowed accepts
// may be there.
func (q *request) check(text, what string, allowed func(held) bool) error {
	for rest := []byte(text); ; {
		_, h := q.v.placeholders.next(rest, true)
		if h == nil {
			return nil
		}
		if err := q.judge(h.text, what, allowed); err != nil {
			return err
		}
		rest = rest[h.end:]
	}
}

// judge returns an error if the placeholder with this core may not be in what.
func (q *request) judge(core, what string, allowed func(held) bool) error {
	for _, h := range q.own {
		if h.core != core {
			continue
		}
		if allowed != nil && allowed(h) {
			return nil
		}
		return &refusal{fmt.Sprintf("the placeholder of a secret is in its %s, but the secret goes into %s", what, h.place())}
	}
	return &refusal{fmt.Sprintf("the placeholder of a secret that is not for this host is in its %s", what)}
}

// refusal says why a request is refused after its start.
type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }

// place says where the broker puts a secret.
func (h held) place() string {
	switch {
	case h.Header != "":
		return "the header " + h.Header
	case h.Query != "":
		return "the query parameter " + h.Query
	}
	return "the field " + h.Field + " of the body"
}

// pick chooses among the secrets that may be used in one place: the one whose
// placeholder is there, otherwise the first.
func pick(all []held, there string) held {
	for _, h := range all {
		if strings.Contains(there, h.core) {
			return h
		}
	}
	return all[0]
}

// header returns in without hop-by-hop fields and, for the host of a secret, with the
// secret in place of all credentials. It refuses other placeholders.
func (q *request) header(in http.Header) (http.Header, error) {
	out := in.Clone()
	dropHops(out)
	var there strings.Builder
	for name, values := range in {
		credential := func(held) bool { return isCredential(q.own, name) }
		for _, text := range append([]string{strings.ToLower(name)}, values...) {
			if err := q.check(text, "header", credential); err != nil {
				return nil, err
			}
		}
		if len(q.own) > 0 && isCredential(q.own, name) {
			_, _ = there.WriteString(strings.Join(values, "\n") + "\n")
			out.Del(name)
		}
	}
	places := map[string][]held{}
	for _, h := range q.own {
		if h.Header != "" {
			name := http.CanonicalHeaderKey(h.Header)
			places[name] = append(places[name], h)
		}
	}
	for name, all := range places {
		h := pick(all, there.String())
		out.Set(name, h.Prefix+h.Value)
	}
	return out, nil
}

// query returns a raw query with the secrets of t in it.
func (q *request) query(raw string) (string, error) {
	places := map[string][]held{}
	for _, h := range q.own {
		if h.Query != "" {
			places[h.Query] = append(places[h.Query], h)
		}
	}
	if len(places) == 0 {
		return raw, q.check(raw, "query", nil)
	}
	var keep []string
	there := map[string]string{}
	for pair := range strings.SplitSeq(raw, "&") {
		key, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if _, ok := places[name]; ok && err == nil {
			own := func(h held) bool { return h.Query == name }
			if err := q.check(pair, "query", own); err != nil {
				return "", err
			}
			there[name] += value + "\n"
			continue
		}
		if pair != "" {
			keep = append(keep, pair)
		}
	}
	if err := q.check(strings.Join(keep, "&"), "query", nil); err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(mapKeys(places)) {
		keep = append(keep, url.QueryEscape(name)+"="+url.QueryEscape(pick(places[name], there[name]).Value))
	}
	return strings.Join(keep, "&"), nil
}

func mapKeys(m map[string][]held) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// fields reports whether a body of a media type can have a field of a secret of t.
func (q *request) fields(contentType string) (isJSON, isForm bool) {
	if !slices.ContainsFunc(q.own, func(h held) bool { return h.Field != "" }) {
		return false, false
	}
	media, _, _ := mime.ParseMediaType(contentType)
	return media == "application/json" || strings.HasSuffix(media, "+json"), media == "application/x-www-form-urlencoded"
}

// body returns a body with the secrets of t in the fields that it has.
func (q *request) body(in []byte, isJSON, isForm bool) ([]byte, error) {
	var parts []part
	var err error
	switch {
	case isJSON:
		parts, err = jsonFields(in)
	case isForm:
		parts = formFields(in)
	}
	if err != nil {
		return nil, err
	}
	var out, rest bytes.Buffer // rest is scanned: out without the values
	last := 0
	for _, p := range parts {
		var all []held
		for _, h := range q.own {
			if h.Field != "" && h.Field == p.name {
				all = append(all, h)
			}
		}
		if len(all) == 0 {
			continue
		}
		value := in[p.start:p.end]
		if err := q.check(string(value), "body", func(h held) bool { return h.Field == p.name }); err != nil {
			return nil, err
		}
		secret := pick(all, string(value)).Value
		out.Write(in[last:p.start])
		rest.Write(in[last:p.start])
		if isJSON {
			quoted, _ := json.Marshal(secret) // text cannot fail
			out.Write(quoted)
		} else {
			out.WriteString(url.QueryEscape(secret))
		}
		rest.WriteByte('"')
		last = p.end
	}
	out.Write(in[last:])
	rest.Write(in[last:])
	return out.Bytes(), q.check(rest.String(), "body", nil)
}

// part is the value of a field: in[start:end] of a body.
type part struct {
	name       string
	start, end int
}

// jsonFields returns the top-level members of an object. Other JSON has none.
func jsonFields(in []byte) (parts []part, err error) {
	if !json.Valid(in) {
		return nil, errors.New("its body is not valid JSON")
	}
	d := json.NewDecoder(bytes.NewReader(in))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		end := int(d.InputOffset())
		parts = append(parts, part{name.(string), end - len(raw), end})
	}
	return parts, nil
}

// formFields returns the fields of a form.
func formFields(in []byte) (parts []part) {
	at := 0
	for pair := range bytes.SplitSeq(in, []byte("&")) {
		key, _, found := bytes.Cut(pair, []byte("="))
		if name, err := url.QueryUnescape(string(key)); err == nil && found {
			parts = append(parts, part{name, at + len(key) + 1, at + len(pair)})
		}
		at += len(pair) + 1
	}
	return parts
}
