package logproof

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

const (
	// TileWidth is how many hashes a complete tile has, and how many entries a complete
	// bundle.
	TileWidth = 256
	// MaxBundle is how many bytes a bundle of entries has at most.
	MaxBundle = TileWidth * (2 + 1<<16)
	// CheckpointName is the name of the newest signed checkpoint beside the tiles.
	CheckpointName = "checkpoint"
)

// TileName is the path of a tile of n hashes or entries in the layout of C2SP
// tlog-tiles: groups of three digits, and the width of a partial tile. The level is a
// number or "entries".
func TileName(level string, index, n uint64) string {
	name := "tile/" + level + "/" + groups(index)
	if n < TileWidth {
		name += fmt.Sprintf(".p/%d", n)
	}
	return name
}

const signedDir = "signed/"

// SignedName is the path, beside the tiles, of the signed documents that an entry names.
// C2SP tlog-tiles does not have it.
func SignedName(entry uint64) string { return signedDir + groups(entry) }

// ParseSignedName returns the entry of a path of SignedName.
func ParseSignedName(name string) (entry uint64, ok bool) {
	digits, ok := strings.CutPrefix(name, signedDir)
	if !ok {
		return 0, false
	}
	entry, err := strconv.ParseUint(strings.NewReplacer("x", "", "/", "").Replace(digits), 10, 64)
	return entry, err == nil && SignedName(entry) == name
}

func groups(index uint64) string {
	name := fmt.Sprintf("%03d", index%1000)
	for index /= 1000; index > 0; index /= 1000 {
		name = fmt.Sprintf("x%03d/", index%1000) + name
	}
	return name
}

// SplitBundle returns the n entries of a bundle, in which each follows its length.
func SplitBundle(content []byte, n uint64) ([][]byte, error) {
	if len(content) > MaxBundle {
		return nil, fmt.Errorf("%d bytes, more than a bundle has", len(content))
	}
	list := make([][]byte, 0, min(n, TileWidth))
	for uint64(len(list)) < n {
		if len(content) < 2 {
			return nil, fmt.Errorf("has %d of %d entries", len(list), n)
		}
		size := int(binary.BigEndian.Uint16(content))
		if content = content[2:]; len(content) < size {
			return nil, fmt.Errorf("entry %d of %d is truncated", len(list)+1, n)
		}
		list, content = append(list, content[:size]), content[size:]
	}
	if len(content) > 0 {
		return nil, fmt.Errorf("%d bytes after its %d entries", len(content), n)
	}
	return list, nil
}

// CutBundle returns the part of a bundle that has its first n entries: a complete bundle
// supersedes the partial ones.
func CutBundle(content []byte, n uint64) []byte {
	end := 0
	for range n {
		if len(content) < end+2 {
			break // SplitBundle reports it
		}
		end = min(len(content), end+2+int(binary.BigEndian.Uint16(content[end:])))
	}
	return content[:end]
}
