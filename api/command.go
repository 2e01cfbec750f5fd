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

// Programs returns the paths below the workspace of the files that a command is known to
// run, and the directories above them: a link in place of such a directory leads to other
// files. Known are the program of the command and of each part of a shell text, words that
// begin with ./, and the script of an interpreter. A file that the command only names, such
// as an argument of test, is not run. What a program reads by itself, such as a Makefile or
// the tests of a module, is not known: Verify.Protects is for it.
func (c Command) Programs() map[string]bool { return c.programs().all }

// Runner is a program of a command that does what files of its directory say, such as make
// or npm; empty if no such program is known.
func (c Command) Runner() string {
	for _, name := range c.programs().started {
		switch name {
		case "make", "gmake", "ninja", "just", "npm", "npx", "yarn", "pnpm", "bun", "jest", "vitest", "go", "cargo", "mvn", "gradle", "sbt", "ant", "bazel", "ctest", "tox", "nox", "pytest", "unittest", "rake", "rspec", "bundle", "phpunit", "composer", "mix", "dotnet", "swift", "zig", "deno":
			return name
		}
	}
	return ""
}

func (c Command) programs() programs {
	p := programs{all: map[string]bool{}}
	p.part(c)
	for _, argument := range c {
		if !strings.ContainsAny(argument, " \t\n;&|") {
			continue // a word, which is not text for a shell
		}
		p.at = ""
		for _, text := range strings.FieldsFunc(argument, func(r rune) bool { return strings.ContainsRune("\n;&|(){}`", r) }) {
			p.part(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t<>$\"'", r) }))
		}
	}
	return p
}

// programs is what is known about the files that a command runs.
type programs struct {
	all     map[string]bool
	started []string // names of programs, without their directories
	at      string   // directory that a shell text has changed to
}

// part reads a command without the operators of a shell.
func (p *programs) part(words []string) {
	program := true // the next word may be the program
	script := false // the next word may be the script of an interpreter
	for i, word := range words {
		option := strings.HasPrefix(word, "-") || strings.HasPrefix(word, "+")
		switch {
		case word == "cd" && program && i+1 < len(words):
			p.at = path.Join(p.at, strings.TrimPrefix(words[i+1], workspace))
		case strings.HasPrefix(word, "./"), strings.HasPrefix(word, "../"), strings.HasPrefix(word, workspace), program && strings.Contains(word, "/"), script && !option:
			p.add("", word)
			p.add(p.at, word)
		}
		// The value of an option may be a script too, such as that of --require.
		script = interpreter(word) || script && (option && !strings.HasSuffix(word, "c") || takesValue(words[i-1])) // -c and -ec have a text
		if program && !beforeProgram(word) || i > 0 && words[i-1] == "-m" {                                         // a module of Python
			p.started = append(p.started, path.Base(word))
		}
		program = program && beforeProgram(word)
	}
}

// add adds the path of a word in a directory, and the directories above it.
func (p *programs) add(dir, word string) {
	name := path.Clean(strings.TrimPrefix(word, workspace))
	if !path.IsAbs(word) {
		name = path.Join(dir, name)
	}
	if strings.HasPrefix(name, "/") || name == ".." || strings.HasPrefix(name, "../") || path.Base(name) == "..." { // packages of Go
		return
	}
	for ; name != "." && !p.all[name]; name = path.Dir(name) {
		p.all[name] = true
	}
}

// beforeProgram reports whether a program may follow a word: a variable, a word of the
// shell's language, or a program that runs another.
func beforeProgram(word string) bool {
	switch word {
	case "!", "if", "then", "else", "elif", "do", "while", "until", "time", "exec", "command", "env", "nice", "nohup", "eval":
		return true
	}
	return strings.Contains(word, "=")
}

// interpreter reports whether a word names a program that runs the file of its first
// argument.
func interpreter(word string) bool {
	name := strings.TrimRight(path.Base(word), "0123456789.")
	switch name {
	case "":
		return word == "."
	case "sh", "ash", "bash", "dash", "ksh", "mksh", "zsh", "fish", "source", "python", "pypy", "perl", "ruby", "node", "nodejs", "bun", "php", "lua", "luajit", "tclsh", "Rscript", "pwsh":
		return true
	}
	return false
}

// takesValue reports whether an option of an interpreter has a value in the next word.
func takesValue(option string) bool {
	switch option {
	case "-o", "-O", "+o", "-W", "-X", "-r", "-I", "--require", "--import", "--rcfile", "--init-file":
		return true
	}
	return false
}
