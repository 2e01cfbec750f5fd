package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/bailiwick-dev/bailiwick/api"
)

// oddText is what people have to read before they decide: words in two scripts, signs that
// JSON and HTML escape, and characters that turn, hide and obey. oddJSON is a part of JSON
// text in which nothing is readable, as encoders for HTML write it.
const (
	oddWords = `Müller 日本語 a < 5 && b > 3`
	oddText  = oddWords + " \u202egpj\u200bx\x1b[2J"
	oddJSON  = `M\u00fcller \u65e5\u672c\u8a9e a \u003c 5 \u0026\u0026 b \u003e 3 \u202egpj\u200bx\u001b[2J`
)

var (
	// joinsLines matches where a text that others wrote continues on a marked line.
	joinsLines = regexp.MustCompile(`\n *\| `)
	// escapedWords matches a readable character in an escaped form.
	escapedWords = regexp.MustCompile(`(?i)\\u(00fc|65e5|672c|8a9e|003c|003e|0026)|\\x(c3|bc|3c|3e|26)|&(lt|gt|amp|#)`)
	// shownHidden matches each hidden character of oddText in a visible form.
	shownHidden = map[string]*regexp.Regexp{
		"U+202E": regexp.MustCompile(`(?i)(\\u|U\+)202e`),
		"U+200B": regexp.MustCompile(`(?i)(\\u|U\+)200b`),
		"ESC":    regexp.MustCompile(`(?i)(\\u00|\\x|U\+00)1b|ESC|␛`),
	}
)

// misread returns why a person cannot read oddWords in what is shown or, unless only words
// were written, may overlook what hides in oddText; "" if neither. The lines of a terminal
// end in a carriage return too.
func misread(shown string, onlyWords bool) string {
	shown = joinsLines.ReplaceAllString(strings.ReplaceAll(shown, "\r\n", "\n"), "")
	for _, r := range shown {
		if r != '\n' && r != '\t' && r != '\u00a0' && (!unicode.IsPrint(r) || unicode.Is(unicode.Cf, r)) {
			return fmt.Sprintf("%U is raw", r)
		}
	}
	if escaped := escapedWords.FindString(shown); escaped != "" {
		return "it has " + escaped
	}
	if !strings.Contains(shown, oddWords) {
		return "it lacks " + oddWords
	}
	for what, visible := range shownHidden {
		if !onlyWords && !visible.MatchString(shown) {
			return "it hides " + what
		}
	}
	return ""
}

// reading checks every place where people read before they decide.
type reading struct {
	*callWorld
	places int
}

// reads fails the test unless a place shows oddText so that it can be read.
func (r *reading) reads(place, shown string) {
	r.t.Helper()
	r.places++
	if why := misread(shown, false); why != "" {
		r.t.Errorf("%s: %s:\n%q", place, why, shown)
	}
}

// command checks the output of a command that succeeds, messages included.
func (r *reading) command(args ...string) {
	r.t.Helper()
	d := r.try(args...)
	if d.status != 0 {
		r.t.Errorf("bailiwick %q: %s", args, d)
	}
	r.reads(strings.Join(args[:min(2, len(args))], " "), d.stdout+d.stderr)
}

// What people read before they sign or decide is readable, in whatever form it came, and
// nothing in it is hidden: calls, tasks, questions, reasons, artifacts and files; before,
// while and after it is signed; in text, on a terminal and on the page. The controls are
// the same check of the text itself, of its JSON, and of text that is cleaned too much.
//
// proves R-B9, R-G6, R-P2
func TestPeopleReadWhatTheyDecide(t *testing.T) {
	t.Parallel()
	for what, bad := range map[string]string{
		"raw": oddText, "JSON": oddJSON, "without what hides": oddWords, "only the words escaped": strings.ReplaceAll(oddJSON, `\u003c`, "<"),
		"ASCII only": `M?ller ??? a < 5 && b > 3 \u202e\u200b\x1b`, "HTML": `Müller 日本語 a &lt; 5 &amp;&amp; b &gt; 3 \u202e\u200b\x1b`,
	} {
		if misread(bad, false) == "" {
			t.Errorf("the control: %s passes", what)
		}
	}
	if why := misread("  reason       | \"Müller 日本語 a < 5 && b >\n               |  3 \\u202egpj\\u200bx\\u001b[2J\"", false); why != "" {
		t.Errorf("the control: readable text: %s", why)
	}

	const tools = `  - {command: change, description: Changes it., run: [cat], input: {type: object}, roles: [transform], tier: stateful, approval: true, trust: trusted}`
	w := &reading{callWorld: newCallWorld(t, 0, []string{"transform stateful"}, tools, "    output: {type: object}\n")}
	w.approvedBy(w.me(), true, "transform")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.upRuns()
	w.downAtEnd()
	w.readCatalog()
	t.Cleanup(func() { w.try("stop", "--all") }) // an agent that waits would outlive the service
	p := w.servePage("--sign-addr", "127.0.0.1:0")
	tab := p.signedIn()
	page := func(path string, exact ...string) { // exact are bytes that the page shows as they are signed, below their text
		t.Helper()
		p.at(tab, path)
		shown := tab.text("main")
		for _, selector := range exact {
			document := tab.text(selector)
			if shown = strings.Replace(shown, document, "", 1); !strings.HasPrefix(document, "{") {
				t.Errorf("page %s: %s is %q", path, selector, document)
			}
		}
		w.reads("page "+path, shown)
	}
	page("/catalog/2")

	call := `printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"change","arguments":{"text":"` + oddJSON + `"}}}' | post; echo '{}' > outputs/result.json`
	ask := `printf '%s\n' '{"question":"` + oddJSON + `","options":["` + oddJSON + `","no"]}' > .bailiwick/question.json`
	w.submit(planned("asks", shellTask("a", ask, as("transform"))))
	w.submit(planned("calls", shellTask("a", call, as("transform"))))
	w.awaitEvent("asks", event("task.waiting", "a"))
	asks := string(w.run("asks").Tasks[0].DispatchID)
	open := string(w.awaitApproval().Action.ID)
	w.command("waiting")
	w.command("dispatch", "show", asks)
	w.command("run", "show", "asks")
	w.command("approval", "show", open)
	page("/inbox")
	page("/dispatches/" + asks)

	// A vote by a passkey waits for its signature; it is signed with a key of a file.
	w.passkey("ann")
	voted := make(chan done, 1)
	go func() { voted <- w.try("approval", "approve", open, "--passkey", "--reason", oddText) }()
	id := string(w.pending().ID)
	w.command("decision", "show", id)
	p.signIn(tab, p.sign)
	tab.visit(p.sign + "/" + id)
	w.reads("the signing page", tab.text("#text"))
	w.command("decision", "sign", id)
	if d := <-voted; d.status != 0 {
		t.Errorf("the vote: %s", d)
	}
	w.awaitSettled("calls")

	_, public := w.operatorKey("bob")
	w.token("human:bob")
	w.command("principal", "add", "agent:ann", "--reason", oddText)
	w.command("token", "create", "agent:ann", "--reason", oddText)
	w.command("ceiling", "set", "agent:ann", "stateful", "--reason", oddText)
	w.command("operators", "add", public, "--principal", "human:bob", "--reason", oddText)
	w.readProducts()
	w.must("stop", "--principal", "agent:ann", "--reason", oddText)
	w.command("stop", "list")
	w.command("stop", "lift", strings.TrimSpace(w.must("stop", "list", "-o", "name")), "--reason", oddText)
	w.command("principal", "remove", "agent:ann", "--reason", oddText)
	decisions := w.entries("--kind", "operator.recorded")
	newest := decisions[len(decisions)-1]
	w.command("audit", "list", "--kind", "operator.recorded")
	w.command("audit", "show", newest)
	page("/log/"+newest, "#leaf")
	page("/decisions/"+fmt.Sprint(len(decisions)), "#record")
	if w.places < 25 {
		t.Errorf("only %d places were read", w.places)
	}
}

// readCatalog reads a revision before and after it is signed: a value, a list and a file.
func (r *reading) readCatalog() {
	r.t.Helper()
	r.replace(manifest, "COLOUR: blue", `COLOUR: "`+oddWords+`"`)
	path := filepath.Join(filepath.Dir(r.path(manifest)), "capabilities/transform/transform.sh")
	old, err := os.ReadFile(path)
	must(r.t, err)
	r.write(strings.TrimPrefix(path, r.dir+"/"), string(old)+"# "+oddText+"\n", 0o755)
	r.command("catalog", "plan", "-f", r.path(manifest))
	r.command("catalog", "apply", "-f", r.path(manifest), "--reason", oddWords)
	r.command("catalog", "diff", "1", "2")
	if why := misread(r.must("catalog", "history"), true); why != "" { // its reasons are plain text
		r.t.Errorf("catalog history: %s", why)
	}
	s := r.onTerminal(200, "catalog", "show", "capability/transform", "--file", "transform.sh")
	s.end()
	r.reads("catalog show --file on a terminal", s.text())
}

// readProducts reads what a task has left, with the name of a file, and votes about it.
func (r *reading) readProducts() {
	r.t.Helper()
	odd := strings.NewReplacer("\u202e", `\342\200\256`, "\u200b", `\342\200\213`, "\x1b", `\033`).Replace(oddText)
	leaves := `printf x > "$(printf '` + odd + `')"; printf '%s\n' '{"says":"` + oddJSON + `"}' > outputs/result.json`
	ship := api.PlanTask{ID: "ship", Approval: &api.TaskApproval{By: []api.Principal{"human:bob"}, Show: []api.TaskID{"build"}}}
	r.submit(planned("products", shellTask("build", leaves, as("transform")), ship))
	id := r.awaitAsked("products", "ship")
	d := r.must(append([]string{"approval", "show", id}, r.person("bob")[:2]...)...)
	r.reads("approval show of a task", d)
	if n := strings.Count(d, oddWords); n != 2 {
		r.t.Errorf("approval show has the words %d times, want a result and a name:\n%s", n, d)
	}
	r.command(append([]string{"approval", "approve", id, "--reason", oddText}, r.person("bob")...)...)
}

// The reason why an anchor is given up is read before it is signed. The service is not
// running: it does not start before.
//
// proves R-B9, R-A6
func TestTheReasonForALostAnchorIsRead(t *testing.T) {
	t.Parallel()
	w, _ := anchored(t, 0)
	w.restore()
	r := &reading{callWorld: &callWorld{w}}
	r.command("anchor", "lost", "disk", "--reason", oddText)
	r.must("anchor", "lost", "history", "--reason", "too")
	r.must("up")
	r.command("audit", "list", "--kind", "operator.recorded")
}
