package plan

import (
	"fmt"
	"math"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The drawing's measures, in its own units.
const (
	boxWidth, boxHeight = 116.0, 44.0
	arrowGap            = 3.0 // between a box and what begins or ends at it
)

type point struct{ x, y float64 }

// place is the middle of a state's box.
func place(s api.TaskState) point {
	switch s {
	case api.TaskPending:
		return point{90, 190}
	case api.TaskReady:
		return point{320, 190}
	case api.TaskRunning:
		return point{600, 190}
	case api.TaskWaiting:
		return point{460, 340}
	case api.TaskSkipped:
		return point{90, 340}
	case api.TaskCancelled:
		return point{460, 40}
	case api.TaskDone:
		return point{850, 100}
	case api.TaskDenied:
		return point{850, 190}
	case api.TaskFailed:
		return point{850, 340}
	}
	return point{} // a test finds a state that has no place
}

// at is how far along its arrow a label stands: where no other arrow is.
func at(from, to api.TaskState) float64 {
	switch {
	case from == api.TaskReady && to == api.TaskRunning:
		return 0.25
	case from == api.TaskWaiting && to == api.TaskCancelled:
		return 0.7
	}
	return 0.5
}

// svgStyle names each colour twice and uses no variables, which not every
// viewer knows.
const svgStyle = `<style>
svg { font: 14px system-ui, sans-serif; }
rect { stroke: #59636e; }
.paper { fill: #ffffff; stroke: none; }
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

// StateMachineSVG draws the table of transitions. docs/state-machine.svg is
// exactly this.
func StateMachineSVG() []byte {
	var b strings.Builder
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 940 430" role="img" aria-labelledby="title desc">` + "\n")
	b.WriteString("<title id=\"title\">The states of a task</title>\n<desc id=\"desc\">")
	for _, t := range Transitions() {
		fmt.Fprintf(&b, "%s, %s: %s. ", t.From, t.Event, t.To)
	}
	b.WriteString("Nothing leaves the other states.</desc>\n")
	b.WriteString(svgStyle)
	b.WriteString(`<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto"><path class="head" d="M0 0 10 5 0 10z"/></marker></defs>` + "\n")
	b.WriteString(`<rect class="paper" width="940" height="430"/>` + "\n")
	arrows(&b)
	for _, s := range api.TaskStates() {
		class := "open"
		if s.Settled() {
			class = "final"
		}
		p := place(s)
		fmt.Fprintf(&b, `<rect class="%s" x="%g" y="%g" width="%g" height="%g" rx="8"/>`, class, p.x-boxWidth/2, p.y-boxHeight/2, boxWidth, boxHeight)
		fmt.Fprintf(&b, `<text class="state" x="%g" y="%g">%s</text>`+"\n", p.x, p.y, s)
	}
	b.WriteString(`<text class="event" x="470" y="408">Dashed: settled, nothing follows. Drawn from the table that the code uses.</text>` + "\n</svg>\n")
	return []byte(b.String())
}

// arrows draws one arrow for all events that lead from one state to another,
// and then the labels, so that no arrow runs over one.
func arrows(b *strings.Builder) {
	type arrow struct{ from, to api.TaskState }
	var order []arrow
	events := map[arrow][]string{}
	for _, t := range Transitions() {
		a := arrow{t.From, t.To}
		if events[a] == nil {
			order = append(order, a)
		}
		events[a] = append(events[a], string(t.Event))
	}
	for _, a := range order {
		from, to := edge(place(a.from), place(a.to)), edge(place(a.to), place(a.from))
		fmt.Fprintf(b, `<line class="arrow" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", from.x, from.y, to.x, to.y)
	}
	for _, a := range order {
		from, to, t := edge(place(a.from), place(a.to)), edge(place(a.to), place(a.from)), at(a.from, a.to)
		fmt.Fprintf(b, `<text class="event" x="%.1f" y="%.1f">%s</text>`+"\n", from.x+(to.x-from.x)*t, from.y+(to.y-from.y)*t, strings.Join(events[a], ", "))
	}
}

// edge is where the way from the middle of a box towards another leaves it.
func edge(box, towards point) point {
	dx, dy := towards.x-box.x, towards.y-box.y
	t := math.Inf(1)
	if dx != 0 {
		t = min(t, (boxWidth/2+arrowGap)/math.Abs(dx))
	}
	if dy != 0 {
		t = min(t, (boxHeight/2+arrowGap)/math.Abs(dy))
	}
	return point{box.x + dx*t, box.y + dy*t}
}
