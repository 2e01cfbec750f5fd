package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// axeSource is axe-core of e2e/browser; scripts/npm installs it where it is missing.
var axeSource = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("../scripts/npm", "browser").Output()
	if err != nil {
		return "", fmt.Errorf("scripts/npm browser: %w", err)
	}
	b, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "axe-core", "axe.min.js"))
	return string(b), err
})

// axe checks the page with all rules of axe-core, and lists its violations: rule, element
// and what is wrong. The source comes through DevTools, so the page's policy needs no
// exception for it. It fetches nothing.
func (t *tab) axe() []string {
	t.b.t.Helper()
	return t.axeRules("")
}

// axeColours is axe with the rules about colours alone: what a change of the scheme can
// violate on a page that axe has checked.
func (t *tab) axeColours() []string {
	t.b.t.Helper()
	return t.axeRules(", runOnly: {type: 'rule', values: ['color-contrast', 'link-in-text-block']}")
}

func (t *tab) axeRules(only string) (found []string) {
	t.b.t.Helper()
	var there bool
	if t.eval("Boolean(window.axe)", &there); !there { // it is large
		source, err := axeSource()
		must(t.b.t, err)
		t.eval("(() => {"+source+"\n})()", nil)
	}
	t.eval(`axe.run(document, {preload: false, resultTypes: ['violations']`+only+`}).then(r => r.violations.flatMap(v =>
		v.nodes.map(n => v.id + ': ' + n.target.join(' ') + ': ' + n.failureSummary.replace(/\s+/g, ' ') + ' ' + n.html.slice(0, 200))))`, &found)
	return found
}

// wide returns by how many pixels the page is wider than its viewport.
func (t *tab) wide() (n int) {
	t.b.t.Helper()
	t.eval("document.documentElement.scrollWidth - document.documentElement.clientWidth", &n)
	return n
}
