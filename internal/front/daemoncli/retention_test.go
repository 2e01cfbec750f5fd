package daemoncli

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRulesOfRetentionAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                   {"checkouts.age 7d", "checkouts.size 20GiB"},
		"retention: {checkouts: {age: 12h}}": {"checkouts.age 12h0m0s", "checkouts.size 20GiB"},
		"retention: {content: {age: 30d, count: 100, size: 50GiB}}":                                   {"checkouts.age 7d", "checkouts.size 20GiB", "content.age 30d", "content.count 100", "content.size 50GiB"},
		"retention: {every: 2h, content: {age: 30d}, evidence: {age: 365d}, checkouts: {size: 1MiB}}": {"checkouts.age 7d", "checkouts.size 1MiB", "content.age 30d", "evidence.age 365d"},
	} {
		s, err := parseSettings("service.yaml", []byte("version: 1\n"+text+"\n"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got := s.Retention.rules().Rules.Strings(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		want := time.Hour
		if strings.Contains(text, "every") {
			want = 2 * time.Hour
		}
		if got := s.Retention.rules().Every; got != want {
			t.Errorf("%s: every %s", text, got)
		}
	}
}

func FuzzAge(f *testing.F) {
	for _, s := range []string{"30d", "0d", "01d", "36525d", "36526d", "12h", "-1h", "1h30m", "", "d", "1e3d", "9999999h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var a ageText
		if err := a.UnmarshalText([]byte(s)); err != nil {
			return
		}
		if d := time.Duration(a); d <= 0 || d > 36525*24*time.Hour {
			t.Errorf("%q is %s", s, d)
		}
	})
}
