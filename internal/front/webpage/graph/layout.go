package graph

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"
)

// Layout is where the tasks of a run are drawn. It does not depend on their states, and
// is not changed after it was made.
type Layout struct {
	list    []vertex
	of      []int // vertex of each task
	column  []int
	edges   []edge
	hidden  int // dependencies that follow from others and are not drawn
	chains  []chain
	items   []item
	columns [][]int   // items of each column, from top to bottom
	y       []float64 // of each item; nil in a layout of more than MaxShown vertices
}

// Lay computes a layout. open has the keys of the nodes that are drawn as their parts.
// The error says why tasks are not a graph.
func Lay(tasks []Task, open []string) (*Layout, error) {
	keys := map[string]bool{}
	for _, key := range open {
		keys[key] = true
	}
	list, err := fold(tasks, keys)
	if err != nil {
		return nil, err
	}
	l := &Layout{list: list, of: make([]int, len(tasks))}
	all := 0
	for i := range list {
		all += len(list[i].after)
		for _, t := range list[i].members {
			l.of[t] = i
		}
	}
	if l.column, err = layers(list); err != nil {
		return nil, err
	}
	l.edges = drawn(list, l.column)
	l.hidden = all - len(l.edges)
	l.items, l.chains = stretch(l.column, l.edges)
	l.columns = arrange(l.items)
	if len(list) <= MaxShown {
		l.y = place(l.items, l.columns)
	}
	return l, nil
}

// cached is how many layouts a Cache keeps.
const cached = 16

// Cache keeps the newest layouts. The zero value is an empty one; it is safe for
// concurrent use.
type Cache struct {
	mu   sync.Mutex
	list []cacheEntry // newest last
}

type cacheEntry struct {
	key    [sha256.Size]byte
	layout *Layout
}

// Lay is Lay, computed once for tasks with the same ids, dependencies and subagents.
func (c *Cache) Lay(tasks []Task, open []string) (*Layout, error) {
	key := keyOf(tasks, open)
	c.mu.Lock()
	defer c.mu.Unlock() // while it is computed, too: one computation for all readers
	if at := slices.IndexFunc(c.list, func(e cacheEntry) bool { return e.key == key }); at >= 0 {
		e := c.list[at]
		c.list = append(slices.Delete(c.list, at, at+1), e)
		return e.layout, nil
	}
	l, err := Lay(tasks, open)
	if err != nil {
		return nil, err
	}
	if len(c.list) == cached {
		c.list = slices.Delete(c.list, 0, 1)
	}
	c.list = append(c.list, cacheEntry{key, l})
	return l, nil
}

// keyOf is the digest of all that a layout depends on.
func keyOf(tasks []Task, open []string) (key [sha256.Size]byte) {
	h := sha256.New()
	var b []byte
	text := func(s string) {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	for _, o := range slices.Compact(slices.Sorted(slices.Values(open))) {
		text(o)
	}
	b = append(b, 0) // no key is empty
	for i := range tasks {
		t := &tasks[i]
		text(string(t.ID))
		text(string(t.GrewFrom))
		text(string(t.Subagent))
		b = binary.AppendUvarint(b, uint64(len(t.After)))
		for _, id := range t.After {
			text(string(id))
		}
		_, _ = h.Write(b) // a hash never fails
		b = b[:0]
	}
	_, _ = h.Write(b)
	h.Sum(key[:0])
	return key
}
