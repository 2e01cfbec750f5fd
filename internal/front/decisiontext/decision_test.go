package decisiontext

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// What a person signs is shown in the script of who wrote it: the reason, the name of a
// key, and the arguments of a call. What hides stays escaped.
//
// proves R-P2
func TestSignersReadWhatTheySign(t *testing.T) {
	call := &api.Action{ActionHead: api.ActionHead{ID: "p-1"}, Call: &api.ToolAction{Tool: "ticket", Arguments: json.RawMessage(`{"text":"M\u00fcller f\u00fcr \u65e5\u672c\u8a9e","if":"a \u003c 5 \u0026\u0026 b \u003e 3","rtl":"\u05e9\u05dc\u05d5\u05dd","trick":"a\u202eb"}`)}}
	r := api.OperatorRecord{Verb: api.VerbApprove, Principal: "human:ann", Approval: "p-1", Reason: "Größe 日本 👩\u200d🚀 שלום \u202e \x1b[2J"}
	text := Text(r, call)
	for _, want := range []string{"Müller für 日本語", "a < 5 && b > 3", "שלום", `a\u202eb`, "Größe 日本 👩\u200d🚀 ", `\u001b[2J`} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not show %q:\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if n := console.Columns(strings.TrimSuffix(line, "\n")); n > 79 && strings.Contains(line, " | ") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, bad := range []string{"\u202e", "\x1b", `\u00fc`, `\u003c`} {
		if strings.Contains(text, bad) {
			t.Errorf("it shows %q:\n%s", bad, text)
		}
	}
}
