package report

import (
	"html/template"
	"io"
)

// page is a report as one page that needs nothing else: no script, no image, no
// address. It prints in black and white.
const page = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{plain .Subject}}: {{plain .Verdict}}</title>
<style>
body { font: 11pt/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #111; background: #fff }
h1 { font-size: 1.5em } h2 { font-size: 1.1em; margin-top: 2em; border-bottom: 1px solid #999 }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; vertical-align: top; padding: .25em .8em .25em 0; border-bottom: 1px solid #ddd; overflow-wrap: anywhere }
th { white-space: nowrap; font-weight: 600 } thead th { border-bottom: 1px solid #999 }
.verdict { border: 2px solid #111; padding: .6em 1em; font-weight: 600 } .fail { text-decoration: underline; font-weight: 700 }
code { font: .92em ui-monospace, monospace }
@media print { body { margin: 0; max-width: none; font-size: 9pt } tr { break-inside: avoid } }
</style>
</head>
<body>
<h1>{{plain .Subject}}</h1>
<p class="verdict">{{if .Failed}}NOT VERIFIED: a check fails. {{end}}{{plain .Verdict}}</p>
{{with .Ran}}<h2>What ran{{if $.Failed}}, as the file claims{{end}}</h2>
<table>
{{range .}}<tr><th scope="row">{{plain .Label}}</th><td>{{plain .Value}}</td></tr>
{{end}}</table>
{{end}}<h2>Checks</h2>
<table>
<thead><tr><th>status</th><th>check</th><th>why</th></tr></thead>
{{range .Rows}}<tr><td{{if eq .Status "fail"}} class="fail"{{end}}>{{plain .Status}}</td><th scope="row">{{plain .Row}}</th><td>{{plain .Why}}</td></tr>
{{end}}</table>
<h2>Scope</h2>
<p>{{plain .Scope}}</p>
<p>root <code>{{plain .Root}}</code></p>
<p>{{plain .Verdict}}</p>
<p>Written by bailiwick-verify. This page proves nothing by itself: to check it, run bailiwick-verify on the evidence with the trust file.</p>
</body>
</html>
`

// text is a value of one of the string types of a report.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case Status:
		return string(v)
	case RowName:
		return string(v)
	}
	return ""
}

// HTML writes the report as one page that an auditor can file and print.
func (r *Report) HTML(w io.Writer) error {
	var facts []fact
	if r.Ran != nil {
		facts = r.Ran.facts(len(r.Ran.Work) + len(r.Ran.Decided))
	}
	t, err := template.New("report").Funcs(template.FuncMap{"plain": func(v any) string { return plain(text(v)) }}).Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, map[string]any{
		"Subject": r.subject(), "Scope": r.scope(), "Verdict": r.verdict(), "Failed": r.Failed(), "Ran": facts, "Rows": r.Rows, "Root": r.Root,
	})
}
