package bundle

import "slices"

// aroundEnd is how many sizes before and after the last entry Select prefers to the
// others.
const aroundEnd = 300

// Select returns the sizes of a log that a bundle proves, of those at which anchors
// got a checkpoint. first and last are the first and the last entry that the bundle is
// about. They are the largest size without first and all after that. If these are more
// than MaxSizes: the largest without first, the 300 before last, the 300 that follow
// and the newest. The result is ascending.
func Select(sizes []uint64, first, last uint64) []uint64 {
	sizes = slices.Compact(slices.Sorted(slices.Values(sizes)))
	i, _ := slices.BinarySearch(sizes, first+1) // of the first that has first
	sizes = sizes[max(i-1, 0):]
	if len(sizes) <= MaxSizes {
		return sizes
	}
	end, _ := slices.BinarySearch(sizes, last+1) // of the first that has last
	out := slices.Concat(sizes[:1], sizes[max(end-aroundEnd, 1):min(end+aroundEnd, len(sizes))])
	newest := sizes[len(sizes)-(MaxSizes-len(out)):]
	return slices.Compact(slices.Sorted(slices.Values(append(out, newest...))))
}
