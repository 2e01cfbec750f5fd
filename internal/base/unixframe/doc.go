// Package unixframe sends documents with descriptors over a unix socket. A frame is the length of a
// document in four bytes, which carry the descriptors, and then its canonical JSON. A frame that is
// anything else is refused whole: nothing of it is used, and its descriptors are closed.
package unixframe
