//go:build unix && !linux

package ownedpath

// ownerAt returns the owner of what is at a path. Only on Linux does a service read what other accounts own.
func ownerAt(path string) (uint32, error) {
	_, owner, err := stat(path)
	return owner, err
}
