package api

import (
	"path"
	"strings"
)

// workspace is the directory of a jail that has the source and the files of capabilities.
const workspace = "/workspace/"

// Paths returns the paths below the workspace that the words of a command may name, and
// the directories above them: a link in place of such a directory leads to other files. A
// word is an argument, a word of an argument for a shell, or what follows an equals sign.
// Nothing is known about the program, so most of the paths name no file.
func (c Command) Paths() map[string]bool {
	const separators = " \t\n;&|()<>{}`$\"'=,"
	all := map[string]bool{}
	for _, argument := range c {
		words := strings.FieldsFunc(argument, func(r rune) bool { return strings.ContainsRune(separators, r) })
		for _, name := range append(words, argument) {
			name = path.Clean(strings.TrimPrefix(name, workspace))
			if strings.HasPrefix(name, "/") || strings.HasPrefix(name, "../") || name == ".." {
				continue
			}
			for ; name != "." && !all[name]; name = path.Dir(name) {
				all[name] = true
			}
		}
	}
	return all
}
