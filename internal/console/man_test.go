package console

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
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
		if strings.HasPrefix(line, ".") && !strings.HasPrefix(line, ".TH ") && !strings.HasPrefix(line, ".S") && !strings.HasPrefix(line, ".B") && line != ".TP" && line != ".nf" && line != ".fi" {
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
