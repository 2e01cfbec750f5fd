package graph

import (
	"cmp"
	"slices"
)

// item is a vertex or a bend of an edge, in a column.
type item struct {
	vertex int // or -1: a bend
	column int
	prev   []int // items of the column before that it is joined with
	next   []int // of the column after
}

// chain is an edge with the items that it goes through, its ends among them. An edge
// that spans too many columns has no bends, and does not take part in the ordering.
type chain struct {
	edge
	items []int
}

// maxBends bounds the bends of all edges, on top of two for each vertex: a long edge
// needs one in each column that it crosses.
const maxBends = 20_000

// stretch makes the items of vertices and edges; the item of a vertex has its index.
func stretch(column []int, edges []edge) ([]item, []chain) {
	items := make([]item, len(column))
	for i := range items {
		items[i] = item{vertex: i, column: column[i]}
	}
	chains := make([]chain, len(edges))
	shortest := make([]int, len(edges))
	for i, e := range edges {
		chains[i], shortest[i] = chain{edge: e}, i
	}
	span := func(i int) int { return column[edges[i].to] - column[edges[i].from] }
	slices.SortStableFunc(shortest, func(a, b int) int { return cmp.Compare(span(a), span(b)) })
	left := maxBends + 2*len(column)
	for _, i := range shortest {
		c := &chains[i]
		if left -= span(i) - 1; left < 0 {
			break
		}
		last := c.from
		c.items = append(c.items, last)
		for at := column[c.from] + 1; at <= column[c.to]; at++ {
			next := c.to
			if at < column[c.to] {
				next = len(items)
				items = append(items, item{vertex: -1, column: at})
			}
			items[last].next, items[next].prev = append(items[last].next, next), append(items[next].prev, last)
			c.items = append(c.items, next)
			last = next
		}
	}
	return items, chains
}

const (
	maxSweeps  = 12
	sweepSteps = 1_500_000 // of all sweeps, in items and joints
)

// arrange orders the items of each column so that few edges cross: sweeps to the right
// and to the left put each item at the mean of its neighbours. It keeps the best order
// found.
func arrange(items []item) [][]int {
	columns := [][]int{}
	joints := 0
	for i := range items {
		for len(columns) <= items[i].column {
			columns = append(columns, nil)
		}
		columns[items[i].column] = append(columns[items[i].column], i)
		joints += len(items[i].next)
	}
	pos := make([]int, len(items))
	renumber := func(column []int) {
		for at, i := range column {
			pos[i] = at
		}
	}
	for _, c := range columns {
		renumber(c)
	}
	best, fewest := copyColumns(columns), crossings(items, columns, pos)
	mean := make([]float64, len(items))
	sweeps := min(maxSweeps, max(2, sweepSteps/(1+len(items)+joints)))
	for sweep, same := 0, 0; sweep < sweeps && fewest > 0 && same < 4; sweep++ {
		for k := range columns {
			c, toRight := columns[k], sweep%2 == 0
			if !toRight {
				c = columns[len(columns)-1-k]
			}
			for at, i := range c {
				near := items[i].prev
				if !toRight {
					near = items[i].next
				}
				mean[i] = float64(at)
				if len(near) > 0 {
					sum := 0
					for _, n := range near {
						sum += pos[n]
					}
					mean[i] = float64(sum) / float64(len(near))
				}
			}
			slices.SortStableFunc(c, func(a, b int) int { return cmp.Compare(mean[a], mean[b]) })
			renumber(c)
		}
		same++
		if n := crossings(items, columns, pos); n < fewest {
			best, fewest, same = copyColumns(columns), n, 0
		}
	}
	return best
}

func copyColumns(columns [][]int) [][]int {
	list := make([][]int, len(columns))
	for i := range columns {
		list[i] = slices.Clone(columns[i])
	}
	return list
}

// crossings counts the pairs of joints that cross, with a Fenwick tree for each
// column.
func crossings(items []item, columns [][]int, pos []int) (n int) {
	var ends, tree []int
	for k := 0; k+1 < len(columns); k++ {
		tree = append(tree[:0], make([]int, len(columns[k+1])+1)...)
		seen := 0
		for _, i := range columns[k] {
			ends = ends[:0]
			for _, next := range items[i].next {
				ends = append(ends, pos[next])
			}
			for _, p := range ends {
				below := 0
				for at := p + 1; at > 0; at &= at - 1 {
					below += tree[at]
				}
				n += seen - below
			}
			for _, p := range ends {
				seen++
				for at := p + 1; at < len(tree); at += at & -at {
					tree[at]++
				}
			}
		}
	}
	return n
}
