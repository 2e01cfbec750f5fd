package api

import "runtime/debug"

// release is the version of this tree. It changes with the changelog.
const release = "0.1.0"

// Version returns the version of this build, with the commit where the build
// recorded one.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return release + "+" + s.Value[:min(12, len(s.Value))]
		}
	}
	return release
}
