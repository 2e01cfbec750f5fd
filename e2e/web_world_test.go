package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// page is a running bailiwick-web of a world, and a browser.
type page struct {
	*browser
	w      *world
	cmd    *exec.Cmd
	origin string // http://127.0.0.1:PORT
	sign   string // http://sign.bailiwick.localhost:PORT of the signing page, with --sign-addr
}

// servePage serves the page of a world until the test ends, and starts a browser. A
// signal to bailiwick ends the program that it executes, too.
func (w *world) servePage(flags ...string) *page {
	w.t.Helper()
	p := &page{w: w}
	p.cmd = w.command(filepath.Join(bin, "bailiwick"), append([]string{"web", "serve", "--addr", "127.0.0.1:0", "-o", "json"}, flags...)...)
	out, err := p.cmd.StdoutPipe()
	must(w.t, err)
	var errs strings.Builder
	p.cmd.Stderr = &errs
	must(w.t, p.cmd.Start())
	first, err := bufio.NewReader(out).ReadBytes('\n')
	w.t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have exited
		_, _ = io.Copy(io.Discard, out)
		if err := p.cmd.Wait(); err != nil || errs.Len() > 0 {
			w.t.Errorf("bailiwick web serve: %v: %s", err, errs.String())
		}
	})
	if err != nil {
		w.t.Fatalf("bailiwick web serve prints no address: %v", err)
	}
	var listening struct{ URL, Sign string }
	must(w.t, json.Unmarshal(first, &listening))
	p.origin, p.sign = strings.TrimSuffix(listening.URL, "/"), strings.TrimSuffix(listening.Sign, "/")
	p.browser = newBrowserAs(w.t, map[bool]int{false: os.Getuid(), true: w.uid}[w.on != nil])
	return p
}

// signedIn opens a tab and signs in with a code of bailiwick web open.
func (p *page) signedIn() *tab {
	p.t.Helper()
	t := p.open()
	t.scheme("light")
	p.signIn(t, p.origin)
	return t
}

// signIn signs a tab in to the page or to the signing page.
func (p *page) signIn(t *tab, origin string) {
	p.t.Helper()
	if status := t.visit(origin + "/"); status != http.StatusUnauthorized {
		p.t.Errorf("without a session the page answers with status %d", status)
	}
	t.fill("input[name=code]", strings.TrimSpace(p.w.must("web", "open", "-o", "name")))
	t.loads("the first page", func() { t.press("Enter") })
	if got := t.value("location.href"); got != origin+"/" || t.count("nav") == 0 {
		p.t.Fatalf("after the code the browser is at %s:\n%s", got, t.text("body"))
	}
	t.forget()
}

// forget drops the errors of the console so far: a login answers with status 401, which
// the console calls an error.
func (t *tab) forget() { t.b.note(func() { t.console = nil }) }

// at opens a path of the page, which must answer with status 200.
func (p *page) at(t *tab, path string) {
	p.t.Helper()
	if status := t.visit(p.origin + path); status != http.StatusOK {
		p.t.Errorf("%s has status %d:\n%s", path, status, t.text("body"))
	}
}

var (
	pagePath  = regexp.MustCompile(`^/(runs|dispatches|decisions|log|approvals|catalog)/[^/]+`)
	pageBytes = regexp.MustCompile(`^/dispatches/[^/]+/(outputs|output|log|patch)/.`)
)

// pageKind names what a path shows: paths of a kind differ in what they are about, and in the
// values of their filters.
func pageKind(u *url.URL) string {
	k := pagePath.ReplaceAllString(u.Path, "/$1/ID")
	k = pageBytes.ReplaceAllString(k, "/dispatches/ID/$1/FILE")
	var keys []string
	for key, values := range u.Query() {
		if strings.Join(values, "") != "" {
			keys = append(keys, key)
		}
	}
	if slices.Sort(keys); len(keys) > 0 {
		k += "?" + strings.Join(keys, "&")
	}
	return k
}

// crawl follows the links of the page from first, and calls each for every page, at most
// a few of each kind. It returns the kinds that it has seen.
func (p *page) crawl(t *tab, each func(path string), first ...string) []string {
	p.t.Helper()
	const few = 2
	todo, known, seen := slices.Clone(first), map[string]bool{}, map[string]int{}
	for _, path := range todo {
		known[path] = true
	}
	for len(todo) > 0 {
		path := todo[0]
		todo = todo[1:]
		u, err := url.Parse(path)
		must(p.t, err)
		k := pageKind(u)
		if !slices.Contains(first, path) {
			if seen[k] >= few {
				continue
			}
			seen[k]++
		} else {
			seen[k] = max(seen[k], 1)
		}
		if status := t.visit(p.origin + path); status == downloads {
			continue
		} else if status != http.StatusOK {
			p.t.Errorf("%s has status %d:\n%s", path, status, t.text("main"))
			continue
		}
		each(path)
		var links []string
		t.eval("[...document.querySelectorAll('a[href], [data-href]')].map(a => new URL(a.href.baseVal ?? a.href, location)).filter(u => u.origin === location.origin).map(u => u.pathname + u.search)", &links)
		for _, l := range links {
			if !known[l] {
				known[l] = true
				todo = append(todo, l)
			}
		}
	}
	var kinds []string
	for k := range seen {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	return kinds
}

// quiet fails the test if a tab had an error on its console, or if anything was sent
// beyond the page.
func (p *page) quiet(t *tab) {
	p.t.Helper()
	if got := t.errors(); len(got) > 0 {
		p.t.Errorf("console: %q", got)
	}
	origins := []string{p.origin}
	if p.sign != "" {
		origins = append(origins, p.sign)
	}
	if got := p.elsewhere(origins...); len(got) > 0 {
		p.t.Errorf("sent elsewhere: %q", got)
	}
}

// Text that a page which forgets to escape would take for elements, and text that changes
// how other text reads. A browser that makes an element of it asks planted.example.
const (
	plantedName = `<b data-planted=1><img src=x onerror=alert(1)>`
	plantedText = `</script></textarea></title>"'><b data-planted=1>x</b><img src="http://planted.example/i" onerror="alert(1)"><script src="http://planted.example/s"></script>` +
		`<svg onload="alert(1)"></svg><iframe src="http://planted.example/f"></iframe><link rel=preconnect href="http://planted.example/"> [x](javascript:alert(1))`
	plantedControls = `\033[31mred\033[0m \r\007 \342\200\256evil\342\200\254 \342\200\213hidden \302\205`
)

// peopledWorld is a service with runs and dispatches of every kind: done, failed, under
// way, with a question, for approval; with patches, outputs, logs, calls of tools. Their
// texts are hostile wherever the service takes any text.
type peopledWorld struct {
	*callWorld
	done, asks api.RunID
}

func newPeopledWorld(t testing.TB) *peopledWorld {
	t.Helper()
	host := newToolHost()
	host.tool("query", "Reads. "+plantedText, func(text string) string { return "read " + text + plantedText })
	host.tool("change", "Changes. "+plantedText, func(string) string { return "changed" })
	at := host.serve(t)
	w := &peopledWorld{callWorld: newCallWorld(t, 0, []string{"quality reversible", "transform stateful"}, fmt.Sprintf(`
  - server: warehouse
    http: {url: %q}
    allow:
      - {tool: query, roles: [quality, transform], tier: observe}
      - {tool: change, roles: [transform], tier: stateful, approval: true}
`, at), "")}
	w.mkdir("gate")
	w.replace(manifest, "{name: local, executor: jail, level: full, mode: open}", "{name: local, executor: jail, level: full, mode: open, readOnly: ["+w.path("gate")+"]}")
	w.approvedBy(w.me(), true, "transform")
	w.pinned()
	w.upRuns()
	w.downAtEnd()
	t.Cleanup(func() { w.try("stop", "--all") }) // agents that wait would outlive the service
	w.token("human:bob")
	w.widened(plantedText)
	hostile := strings.NewReplacer("'", `'"'"'`).Replace(plantedText)
	work := `echo begun
P='` + hostile + `'
printf '%s\n` + plantedControls + `\n' "$P"
printf '%s\n' "$P" > '` + plantedName + `.sh'
printf '%s\n` + plantedControls + `\n' "$P" >> a.txt
printf '%s\n' "$P" > 'outputs/` + plantedName + `.html'
call warehouse_query "$(jq -nc --arg t "$P" '{text: $t}')"`
	asks := `jq -nc --arg t '` + hostile + `' '{question: $t, options: [$t, "no"], context: {seen: $t}}' > .bailiwick/question.json`
	w.done = w.submit(labelled(planned("whole",
		shellTask("first", work, as("quality")),
		shellTask("left", "echo left > left.txt", as("quality"), after("first")),
		shellTask("right", "echo right > right.txt", as("quality"), after("first")),
		shellTask("last", "echo last > last.txt", as("transform"), after("left", "right")))))
	w.asks = w.submit(planned("asks", shellTask("a", asks, as("quality"))))
	failed := w.submit(planned("broken", shellTask("a", "echo half > half.txt; echo "+"'"+hostile+"'"+" >&2; exit 3", as("quality")), shellTask("b", "true", as("quality"), after("a"))))
	w.submit(planned("under-way", shellTask("a", "GATE="+w.path("gate")+"\n"+awaitGate("end"), as("quality")), shellTask("b", "true", as("quality"), after("a"))))
	w.submit(planned("calls", shellTask("a", "call warehouse_change \"$(jq -nc --arg t '"+hostile+"' '{text: $t}')\"", as("transform"))))
	cancelled := w.submit(planned("cancelled", shellTask("a", "GATE="+w.path("gate")+"\n"+awaitGate("never"), as("quality"))))
	w.begunTask("under-way", "a")
	w.must("run", "cancel", string(cancelled), "--reason", plantedText)
	w.awaitSettled(w.done)
	w.awaitSettled(failed)
	w.awaitEvent(w.asks, event("task.waiting", "a"))
	w.awaitApproval()
	w.must("stop", "--principal", "human:bob", "--reason", plantedText)
	return w
}

// widened applies a second revision, which has lines that widen authority and a text
// wherever a manifest takes any.
func (w *world) widened(text string) {
	w.t.Helper()
	w.replace(manifest, "\nenvs:\n", "\nenvs:\n  - name: planted\n    description: "+strconv.Quote(text)+"\n    values: {PATH: "+strconv.Quote("/opt/"+text)+"}\n")
	w.replace(manifest, "COLOUR: blue", "COLOUR: red")
	w.must("catalog", "apply", "-f", w.path(manifest), "--reason", text)
}

func labelled(p api.Plan) api.Plan {
	p.Labels = map[api.Name]string{"ticket": "<b data-planted=1>OPS"}
	return p
}

// dispatchOf returns the dispatch of a task.
func (w *peopledWorld) dispatchOf(run api.RunID, id api.TaskID) api.DispatchID {
	w.t.Helper()
	return task(w.t, w.run(run), id).DispatchID
}

// starts lists the pages that a crawl begins with: the first one, and of the runs and
// dispatches those that have the most to show.
func (w *peopledWorld) starts() []string {
	return []string{"/", "/catalog/2", "/runs/" + string(w.done), "/dispatches/" + string(w.dispatchOf(w.done, "first")), "/dispatches/" + string(w.dispatchOf(w.asks, "a"))}
}
