package retain

import (
	"encoding/hex"

	"github.com/bailiwick-dev/bailiwick/api"
)

// key is a digest in the form that takes little room.
type key [32]byte

func keyOf(d api.Digest) (k key) {
	_, _ = hex.Decode(k[:], []byte(d.Hex())) // a parsed digest
	return k
}

func (k key) digest() api.Digest { return api.Digest("sha256:" + hex.EncodeToString(k[:])) }

// heap is every blob with how many refer to it.
type heap map[key]*cell

type cell struct {
	size              int64
	here              bool // there is a file
	content, evidence int32
}

func (h heap) at(k key) *cell {
	c := h[k]
	if c == nil {
		c = &cell{}
		h[k] = c
	}
	return c
}

// add counts the references of one dispatch. A digest that it refers to twice
// counts twice, here and in drop.
func (h heap) add(content, evidence []key) {
	for _, k := range content {
		h.at(k).content++
	}
	for _, k := range evidence {
		h.at(k).evidence++
	}
}

// drop takes references back and returns the bytes of what nothing refers to
// any more.
func (h heap) drop(keys []key, evidence bool) (freed int64) {
	for _, k := range keys {
		c := h.at(k)
		if evidence {
			c.evidence--
		} else {
			c.content--
		}
		if !c.referred() {
			freed += c.size
		}
	}
	return freed
}

func (c *cell) referred() bool { return c.content > 0 || c.evidence > 0 }

// totals are what the blobs take. What is content of one dispatch and evidence
// of another is evidence.
type totals struct {
	content, evidence, loose int64
	kept, looseBlobs         int
}

func (h heap) totals() (t totals) {
	for _, c := range h {
		if !c.here {
			continue
		}
		switch {
		case c.evidence > 0:
			t.evidence += c.size
		case c.content > 0:
			t.content += c.size
		default:
			t.loose += c.size
			t.looseBlobs++
			continue
		}
		t.kept++
	}
	return t
}
