package redact

// automaton is that of Aho and Corasick: it finds every needle in one pass. Nodes
// have lists of children, not tables, because most have one child and values may be
// long.
type automaton struct {
	nodes   []node
	first   [256]int32 // children of the root
	longest int        // needle
}

// node is a prefix of a needle. The root is node 0.
type node struct {
	child   int32 // first child
	sibling int32 // next child of the same parent
	fail    int32 // node of the longest proper suffix that is a prefix of a needle
	depth   int32 // length of the prefix
	match   int32 // length of the longest needle that ends here; 0: none
	label   byte
}

func newAutomaton(needles [][]byte) *automaton {
	a := &automaton{nodes: make([]node, 1)}
	for _, needle := range needles {
		a.add(needle)
	}
	a.link()
	return a
}

func (a *automaton) add(needle []byte) {
	at := int32(0)
	for i, b := range needle {
		next := a.child(at, b)
		if next == 0 {
			next = int32(len(a.nodes)) //nolint:gosec // G115: the values of a dispatch are bounded
			a.nodes = append(a.nodes, node{sibling: a.nodes[at].child, depth: int32(i + 1), label: b})
			a.nodes[at].child = next
			if at == 0 {
				a.first[b] = next
			}
		}
		at = next
	}
	a.nodes[at].match = int32(len(needle)) //nolint:gosec // G115: as above
	a.longest = max(a.longest, len(needle))
}

// link sets fail and match of each node, shorter prefixes first.
func (a *automaton) link() {
	queue := make([]int32, 0, len(a.nodes))
	for c := a.nodes[0].child; c != 0; c = a.nodes[c].sibling {
		queue = append(queue, c)
	}
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		for c := a.nodes[at].child; c != 0; c = a.nodes[c].sibling {
			fail := a.step(a.nodes[at].fail, a.nodes[c].label)
			a.nodes[c].fail = fail
			a.nodes[c].match = max(a.nodes[c].match, a.nodes[fail].match)
			queue = append(queue, c)
		}
	}
}

// child returns the child of a node with a label, or 0.
func (a *automaton) child(at int32, b byte) int32 {
	if at == 0 {
		return a.first[b]
	}
	c := a.nodes[at].child
	for c != 0 && a.nodes[c].label != b {
		c = a.nodes[c].sibling
	}
	return c
}

// step returns the node after the next byte.
func (a *automaton) step(at int32, b byte) int32 {
	for {
		next := a.child(at, b)
		if next != 0 || at == 0 {
			return next
		}
		at = a.nodes[at].fail
	}
}
