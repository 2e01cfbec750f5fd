package visibletext

import "strings"

// ShellText quotes a command for a POSIX shell, for a person who copies it. It is the
// one function that quotes words for a shell in messages.
func ShellText(command ...string) string {
	var words []string
	for _, word := range command {
		if word == "" || strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,") != "" {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}
