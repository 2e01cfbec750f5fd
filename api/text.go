package api

// Cut returns the beginning of s, of at most n bytes, that ends with a whole character.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for at := n; at >= 0 && at > n-4; at-- {
		if s[at]&0xc0 != 0x80 { // a character begins here
			return s[:at]
		}
	}
	return s[:max(n, 0)] // no UTF-8
}
