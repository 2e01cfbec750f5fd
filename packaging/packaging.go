// Package packaging has the files that an installation in mode system puts on a machine
// beside its programs: units, accounts and directories.
package packaging

import "embed"

// Systemd has the units, and the accounts and directories as sysusers.d(5) and
// tmpfiles.d(5) describe them. Programs are in /usr/lib/bailiwick there.
//
//go:embed systemd
var Systemd embed.FS
