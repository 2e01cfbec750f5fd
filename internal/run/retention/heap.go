package retention

import (
	"encoding/hex"

	"github.com/bailiwick-dev/bailiwick/api"
)

// key is a compact digest.
type key [32]byte

func keyOf(d api.Digest) (k key) {
	_, _ = hex.Decode(k[:], []byte(d.Hex())) // of a parsed digest
	return k
}

func (k key) digest() api.Digest { return api.Digest("sha256:" + hex.EncodeToString(k[:])) }

// refCounts has the reference counts of every blob.
type refCounts map[key]*cell

type cell struct {
	size              int64
	here              bool // the file exists
	content, evidence int32
}

func (h refCounts) at(k key) *cell {
	c := h[k]
	if c == nil {
		c = &cell{}
		h[k] = c
	}
	return c
}

// add counts the references of one dispatch. Duplicates count twice, here and in
// drop.
func (h refCounts) add(content, evidence []key) {
	for _, k := range content {
		h.at(k).content++
	}
	for _, k := range evidence {
		h.at(k).evidence++
	}
}

// drop removes references and returns the bytes of blobs without any left.
func (h refCounts) drop(keys []key, evidence bool) (freed int64) {
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

// totals are the sizes of blobs, in bytes. A blob that is content of one dispatch
// and evidence of another counts as evidence.
type totals struct {
	content, evidence, loose int64
	kept                     int
}

func (h refCounts) totals() (t totals) {
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
			continue
		}
		t.kept++
	}
	return t
}
