package graph

import "math"

// The measures of a picture, in pixels.
const (
	NodeWidth  = 184
	NodeHeight = 44
	columnGap  = 64
	rowGap     = 14
	bendHeight = 10
	margin     = 12
)

const placeSweeps = 8

// place returns the middle of each item from top to bottom: near the mean of its
// neighbours, in the given order and without overlap.
func place(items []item, columns [][]int) []float64 {
	y := make([]float64, len(items))
	offsets := make([][]float64, len(columns))
	for k, c := range columns {
		offsets[k] = make([]float64, len(c))
		for at := 1; at < len(c); at++ {
			offsets[k][at] = offsets[k][at-1] + (height(items[c[at-1]])+height(items[c[at]]))/2 + rowGap
		}
		for at, i := range c {
			y[i] = offsets[k][at]
		}
	}
	var want, weight []float64
	for sweep := range placeSweeps {
		for k := range columns {
			if sweep%2 == 1 {
				k = len(columns) - 1 - k
			}
			want, weight = want[:0], weight[:0]
			for at, i := range columns[k] {
				w, n := pull(items, y, i, sweep%2 == 0)
				want, weight = append(want, w-offsets[k][at]), append(weight, n)
			}
			fitted := increasing(want, weight)
			for at, i := range columns[k] {
				y[i] = fitted[at] + offsets[k][at]
			}
		}
	}
	top := math.Inf(1)
	for i := range y {
		top = min(top, y[i]-height(items[i])/2)
	}
	for i := range y {
		y[i] = math.Round(y[i] - top + margin)
	}
	return y
}

func height(it item) float64 {
	if it.vertex < 0 {
		return bendHeight
	}
	return NodeHeight
}

// pull returns where the neighbours of an item want it, and how much. The column that a
// sweep comes from counts, and the other one if it has no neighbours there. Bends pull
// more, so that long edges are straight.
func pull(items []item, y []float64, i int, toRight bool) (at, weight float64) {
	near, other := items[i].prev, items[i].next
	if !toRight {
		near, other = other, near
	}
	if len(near) == 0 {
		near = other
	}
	if len(near) == 0 {
		return y[i], 0.1
	}
	sum := 0.0
	for _, n := range near {
		sum += y[n]
	}
	weight = 1
	if items[i].vertex < 0 {
		weight = 4
	}
	return sum / float64(len(near)), weight
}

// increasing returns the values closest to want, by weighted squares, that never
// decrease: neighbours in the wrong order are pooled.
func increasing(want, weight []float64) []float64 {
	type pool struct {
		mean, weight float64
		n            int
	}
	var pools []pool
	for i := range want {
		pools = append(pools, pool{want[i], weight[i], 1})
		for n := len(pools); n > 1 && pools[n-2].mean > pools[n-1].mean; n = len(pools) {
			a, b := pools[n-2], pools[n-1]
			w := a.weight + b.weight
			pools = append(pools[:n-2], pool{(a.mean*a.weight + b.mean*b.weight) / w, w, a.n + b.n})
		}
	}
	out := make([]float64, 0, len(want))
	for _, p := range pools {
		for range p.n {
			out = append(out, p.mean)
		}
	}
	return out
}
