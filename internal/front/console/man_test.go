package console

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
)

func hostilePage() *cobra.Command {
	root := &cobra.Command{Use: "tool", Version: `v1 "2"`, Short: "Do things", Long: ".so /etc/passwd\n'br\n\\*(xx back\\fBslash\x1b[31m -- it's ^here~ `now`"}
	root.AddCommand(&cobra.Command{Use: "verb ARG", Short: "Do a thing", Example: Examples("tool verb x", ".de evil"), Run: func(*cobra.Command, []string) {}})
	return root
}

// No text of a page is a request or an escape sequence of roff.
func TestManPagesEscapeTheirText(t *testing.T) {
	page := ManPage(hostilePage())
	for line := range strings.SplitSeq(page, "\n") {
		if strings.HasPrefix(line, ".") && !strings.HasPrefix(line, ".TH ") && !strings.HasPrefix(line, ".S") && !strings.HasPrefix(line, ".B") && line != ".TP" && line != ".PP" && line != ".nf" && line != ".fi" {
			t.Errorf("%q is a request", line)
		}
		if strings.HasPrefix(line, "'") || strings.Contains(line, `\*`) || strings.Contains(line, `\f`) || strings.Contains(line, "\x1b") {
			t.Errorf("%q is not escaped", line)
		}
	}
	if again := ManPage(hostilePage()); again != page {
		t.Error("the same command has another page the second time")
	}
	if !strings.Contains(page, "\n\\&.so /etc/passwd\n\\(aqbr\n\\e*(xx back\\efBslash\\ex1b[31m ") {
		t.Errorf("the description is not there as it is:\n%s", page)
	}
}

func TestManPagesRender(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "groff", "-man", "-Tascii", "-ww", "-P-cbou")
	cmd.Stdin = strings.NewReader(ManPage(hostilePage()))
	out, err := cmd.CombinedOutput()
	for _, want := range []string{".so /etc/passwd", "'br", `\*(xx back\fBslash`, "it's ^here~ `now`", "TOOL(1)"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %q is missing in\n%s", err, want, out)
		}
	}
	if strings.Contains(string(out), "warning") {
		t.Errorf("groff warns:\n%s", out)
	}
}

// Each page has the exit codes of the reference, and of every error.
func TestManPagesHaveTheExitCodes(t *testing.T) {
	reference, err := os.ReadFile("../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(reference), "\n## Exit codes\n")
	table, _, _ = strings.Cut(table, "\nWith `-o json`")
	want := []string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(table, -1) {
		want = append(want, row[1])
	}
	root := hostilePage()
	for _, cmd := range []*cobra.Command{root, root.Commands()[0]} {
		_, part, _ := strings.Cut(ManPage(cmd), "\n.SH EXIT STATUS\n")
		got := []string{}
		for _, row := range regexp.MustCompile(`(?m)^\.B (\d+)$`).FindAllStringSubmatch(part, -1) {
			got = append(got, row[1])
		}
		if len(want) < 5 || !slices.Equal(got, want) {
			t.Errorf("%s: exit codes %v, the reference has %v", cmd.Name(), got, want)
		}
		for code, row := range api.Table() {
			if !slices.Contains(got, strconv.Itoa(row.Exit)) {
				t.Errorf("%s: no exit code %d, which is that of %s", cmd.Name(), row.Exit, code)
			}
		}
	}
}

// A page made of a program's help has all of it, and none of it is a request.
func TestHelpBecomesAPage(t *testing.T) {
	dir := t.TempDir()
	if err := WriteHelpPage(dir, "bailiwick-x", "v1", "Do it", "Usage: bailiwick-x FILE [-o text]\n\nDo it.\n.so /etc/passwd\n  --flag  for it\n"); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "bailiwick-x.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{".TH \"BAILIWICK\\-X\" 1 ", "\n.SH SYNOPSIS\n.B bailiwick\\-x FILE [\\-o text]\n", "\nDo it.\n\\&.so /etc/passwd\n  \\-\\-flag  for it\n.fi\n"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("%q is missing in\n%s", want, page)
		}
	}
}
