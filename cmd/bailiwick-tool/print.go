package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// list prints the tools of the agent's role.
func (p program) list(ctx context.Context, asJSON bool) error {
	raw, list, err := p.client.tools(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(p.out).Encode(map[string]any{"tools": raw})
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	for _, t := range list {
		about, _, _ := strings.Cut(strings.TrimSpace(t.Description), "\n")
		_, _ = fmt.Fprintf(w, "%s\t%s\n", clean(t.Name), clean(about))
	}
	return w.Flush()
}

// print prints what a tool answered: on standard output, or as an error.
func (p program) print(name string, r result, asJSON bool) error {
	if asJSON {
		if _, err := fmt.Fprintf(p.out, "%s\n", r.raw); err != nil {
			return err
		}
	}
	text := r.text()
	switch {
	case r.IsError:
		return fail(r.Meta.Reason.status(), "%s: %s", name, text)
	case asJSON || text == "":
		return nil
	}
	_, err := io.WriteString(p.out, strings.TrimSuffix(text, "\n")+"\n")
	return err
}

// text is the answer for a shell: its texts, or else its structured content. Other
// content, such as an image, is JSON.
func (r result) text() string {
	var parts []string
	for _, doc := range r.Content {
		var c struct{ Type, Text string }
		if json.Unmarshal(doc, &c) == nil && c.Type == "text" {
			parts = append(parts, c.Text)
			continue
		}
		parts = append(parts, string(doc))
	}
	if len(parts) == 0 {
		return string(r.Structured)
	}
	return strings.Join(parts, "\n")
}

// clean is text without control characters but the ends of lines.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t':
			return ' '
		case unicode.IsControl(r):
			return -1
		}
		return r
	}, s)
}
