// Package mounttree creates, restricts and attaches mounts by descriptor, with the kernel's newer mount calls.
//
// A mount is created detached, restricted and then attached, so it is never visible with more rights. The package decides
// nothing about what is shown to which process. Part of R-S1.
package mounttree
