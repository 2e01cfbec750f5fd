package plan

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// A picture is a table of transitions with the places of its states.
type picture struct {
	title         string
	width, height float64
	arrows        []arrow
	places        map[string]point   // middles of the boxes
	final         map[string]bool    // states that nothing leaves
	group         []string           // states drawn in one frame; steps that all of them have are drawn from the frame
	labels        map[string]float64 // "from to": how far along the arrow its label is; 0.5 otherwise
}

type arrow struct{ from, event, to string }

type point struct{ x, y float64 }

// box is a rectangle by its middle and half its size.
type box struct{ x, y, w, h float64 }

const (
	stateWidth, stateHeight = 116.0, 44.0
	arrowGap                = 3.0 // between a box and an arrow
	framePadding            = 16.0
)

// pictureStyle names each colour twice, for light and dark, and uses no
// variables: not every viewer knows them.
const pictureStyle = `<style>
svg { font: 14px system-ui, sans-serif; }
rect { stroke: #59636e; }
.paper { fill: #ffffff; stroke: none; }
.frame { fill: none; stroke-dasharray: 2 4; }
.open { fill: #ddf4ff; }
.final { fill: #f6f8fa; stroke-dasharray: 5 3; }
.arrow { stroke: #59636e; stroke-width: 1.5; marker-end: url(#head); }
.head { fill: #59636e; }
text { fill: #1f2328; text-anchor: middle; dominant-baseline: central; }
.state { font-weight: 600; }
.event { font-size: 12px; font-style: italic; stroke: #ffffff; stroke-width: 5px; stroke-linejoin: round; paint-order: stroke; }
@media (prefers-color-scheme: dark) {
rect, .arrow { stroke: #9198a1; }
.paper { fill: #0d1117; stroke: none; }
.open { fill: #0c2d6b; }
.final { fill: #21262d; }
.head { fill: #9198a1; }
text { fill: #f0f6fc; }
.event { stroke: #0d1117; }
}
</style>
`

func taskPicture() picture {
	p := picture{title: "The states of a task", width: 940, height: 450, final: map[string]bool{}, places: map[string]point{
		"pending": {90, 190}, "ready": {320, 190}, "running": {600, 190}, "waiting": {460, 340}, "skipped": {90, 340},
		"cancelled": {460, 40}, "growing": {660, 340}, "done": {850, 100}, "denied": {850, 190}, "failed": {850, 400},
	}, labels: map[string]float64{"ready running": 0.25, "waiting cancelled": 0.7}}
	for _, t := range record.TaskTransitions() {
		if t.From == t.To {
			continue // it grows further
		}
		p.arrows = append(p.arrows, arrow{string(t.From), string(t.Event), string(t.To)})
	}
	for _, s := range api.TaskStates() {
		p.final[string(s)] = s.Settled()
	}
	return p
}

func runPicture() picture {
	p := picture{title: "The states of a run", width: 720, height: 400, final: map[string]bool{}, places: map[string]point{
		"running": {110, 90}, "waiting": {360, 90}, "paused": {235, 270}, "done": {630, 90}, "failed": {630, 180}, "cancelled": {630, 270},
	}, group: []string{"running", "waiting", "paused"}}
	for _, t := range RunTransitions() {
		p.arrows = append(p.arrows, arrow{string(t.From), string(t.Event), string(t.To)})
	}
	for _, s := range api.RunStates() {
		p.final[string(s)] = s.Settled()
	}
	return p
}

func dispatchPicture() picture {
	p := picture{title: "The states of a dispatch", width: 720, height: 400, final: map[string]bool{}, places: map[string]point{
		"accepted": {110, 90}, "started": {360, 90}, "needs_input": {235, 270}, "finished": {630, 90}, "failed": {630, 180}, "cancelled": {630, 270},
	}, group: []string{"accepted", "started", "needs_input"}}
	for _, t := range record.DispatchTransitions() {
		if t.From == "" {
			continue // its first entry
		}
		p.arrows = append(p.arrows, arrow{string(t.From), strings.TrimPrefix(string(t.Kind), "dispatch."), string(t.To)})
		for _, s := range []api.Event{t.From, t.To} {
			p.final[string(s)] = !slices.ContainsFunc(record.DispatchTransitions(), func(x record.DispatchTransition) bool { return x.From == s })
		}
	}
	return p
}

// Each drawing in docs is of its table; -update draws them again.
func TestStateDrawingsMatchTheTables(t *testing.T) {
	for name, p := range map[string]picture{"task": taskPicture(), "run": runPicture(), "dispatch": dispatchPicture()} {
		file := "../../../docs/state-" + name + ".svg"
		drawn := p.svg()
		if *update {
			if err := os.WriteFile(file, drawn, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if b, err := os.ReadFile(file); err != nil || !bytes.Equal(b, drawn) {
			t.Errorf("%s does not match the table (%v): go test ./internal/rule/plan -run Drawing -update", file, err)
		}
		for d := xml.NewDecoder(bytes.NewReader(drawn)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		taken := map[point]bool{}
		for s := range p.final {
			at, ok := p.places[s]
			if !ok || taken[at] || !strings.Contains(string(drawn), fmt.Sprintf(`<text class="state" x="%g" y="%g">%s</text>`, at.x, at.y, s)) {
				t.Errorf("%s: state %s has no box of its own", name, s)
			}
			taken[at] = true
		}
		for _, a := range p.arrows {
			if !strings.Contains(string(drawn), fmt.Sprintf("%s, %s: %s. ", a.from, a.event, a.to)) || !strings.Contains(string(drawn), a.event) {
				t.Errorf("%s: %v is not drawn", name, a)
			}
		}
	}
}

func (p picture) svg() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" aria-labelledby="title desc">`+"\n", p.width, p.height)
	fmt.Fprintf(&b, "<title id=\"title\">%s</title>\n<desc id=\"desc\">", p.title)
	for _, a := range p.arrows {
		fmt.Fprintf(&b, "%s, %s: %s. ", a.from, a.event, a.to)
	}
	b.WriteString("Nothing leaves the other states.</desc>\n" + pictureStyle)
	b.WriteString(`<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto"><path class="head" d="M0 0 10 5 0 10z"/></marker></defs>` + "\n")
	fmt.Fprintf(&b, `<rect class="paper" width="%g" height="%g"/>`+"\n", p.width, p.height)
	p.draw(&b)
	for _, s := range p.states() {
		class, at := "open", p.places[s]
		if p.final[s] {
			class = "final"
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%g" y="%g" width="%g" height="%g" rx="8"/>`, class, at.x-stateWidth/2, at.y-stateHeight/2, stateWidth, stateHeight)
		fmt.Fprintf(&b, `<text class="state" x="%g" y="%g">%s</text>`+"\n", at.x, at.y, s)
	}
	note := "Dashed: final. "
	if p.group != nil {
		note += "An arrow from the dotted frame is from each state in it. "
	}
	fmt.Fprintf(&b, `<text class="event" x="%g" y="%g">%sDrawn from the table that the code uses.</text>`+"\n</svg>\n", p.width/2, p.height-22, note)
	return []byte(b.String())
}

func (p picture) states() (list []string) {
	for s := range p.final {
		list = append(list, s)
	}
	slices.Sort(list)
	return list
}

// draw draws one arrow for all events that lead from one state to another, then
// the labels, so that no arrow runs over one.
func (p picture) draw(b *strings.Builder) {
	type way struct{ from, to string }
	var order []way
	events := map[way][]string{}
	for _, a := range p.arrows {
		w := way{a.from, a.to}
		if p.ofAll(a) {
			w.from = ""
		}
		if events[w] == nil {
			order = append(order, w)
		}
		if !slices.Contains(events[w], a.event) {
			events[w] = append(events[w], a.event)
		}
	}
	if p.group != nil {
		f := p.frame()
		fmt.Fprintf(b, `<rect class="frame" x="%g" y="%g" width="%g" height="%g" rx="12"/>`+"\n", f.x-f.w, f.y-f.h, 2*f.w, 2*f.h)
	}
	ends := func(w way) (from, to point) {
		target := p.box(w.to)
		if w.from == "" { // straight out of the frame
			f := p.frame()
			return point{f.x + f.w + arrowGap, target.y}, point{target.x - target.w - arrowGap, target.y}
		}
		from, to = p.box(w.from).edge(point{target.x, target.y}), target.edge(p.places[w.from])
		if events[way{w.to, w.from}] != nil { // beside the arrow back
			dx, dy := to.x-from.x, to.y-from.y
			length := math.Hypot(dx, dy)
			shift := point{-dy / length * 9, dx / length * 9}
			from, to = point{from.x + shift.x, from.y + shift.y}, point{to.x + shift.x, to.y + shift.y}
		}
		return from, to
	}
	for _, w := range order {
		from, to := ends(w)
		fmt.Fprintf(b, `<line class="arrow" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", from.x, from.y, to.x, to.y)
	}
	for _, w := range order {
		from, to := ends(w)
		along, ok := p.labels[w.from+" "+w.to]
		if !ok {
			along = 0.5
		}
		if events[way{w.to, w.from}] != nil {
			along = 0.35 // not beside the label of the arrow back
		}
		fmt.Fprintf(b, `<text class="event" x="%.1f" y="%.1f">%s</text>`+"\n", from.x+(to.x-from.x)*along, from.y+(to.y-from.y)*along, strings.Join(events[w], ", "))
	}
}

// ofAll reports whether every state of the group has the step of a.
func (p picture) ofAll(a arrow) bool {
	if !slices.Contains(p.group, a.from) {
		return false
	}
	for _, s := range p.group {
		if !slices.Contains(p.arrows, arrow{s, a.event, a.to}) {
			return false
		}
	}
	return true
}

func (p picture) box(state string) box {
	at := p.places[state]
	return box{at.x, at.y, stateWidth / 2, stateHeight / 2}
}

// frame is around the group.
func (p picture) frame() box {
	left, top, right, bottom := math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)
	for _, s := range p.group {
		b := p.box(s)
		left, right = min(left, b.x-b.w), max(right, b.x+b.w)
		top, bottom = min(top, b.y-b.h), max(bottom, b.y+b.h)
	}
	return box{(left + right) / 2, (top + bottom) / 2, (right-left)/2 + framePadding, (bottom-top)/2 + framePadding}
}

// edge is where the way from b's middle towards a point leaves it.
func (b box) edge(towards point) point {
	dx, dy := towards.x-b.x, towards.y-b.y
	t := math.Inf(1)
	if dx != 0 {
		t = min(t, (b.w+arrowGap)/math.Abs(dx))
	}
	if dy != 0 {
		t = min(t, (b.h+arrowGap)/math.Abs(dy))
	}
	return point{b.x + dx*t, b.y + dy*t}
}
