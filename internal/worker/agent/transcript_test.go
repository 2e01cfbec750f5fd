package agent

import (
	"bytes"
	"strings"
	"testing"
)

// Streams that the pinned programs wrote, shortened.
func TestReadersOfEventStreams(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		want   Report
		log    string
	}{
		"claude-code": {
			`{"type":"system","subtype":"init","session_id":"s-1"}
{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash","input":{"command":"echo hello\n > made.txt"}}]}}
{"type":"user","message":{"content":[{"type":"tool_result","content":"0"}]}}
{"type":"assistant","message":{"content":[{"type":"text","text":"All done."}]}}
{"type":"result","subtype":"success","is_error":false,"session_id":"s-1","result":"All done."}
`,
			Report{Text: "All done.", Session: "s-1"},
			"> Bash echo hello > made.txt\nAll done.\n",
		},
		"codex": {
			`{"type":"thread.started","thread_id":"s-1"}
{"type":"turn.started"}
{"type":"item.started","item":{"type":"command_execution","command":"/bin/bash -lc 'id -u'"}}
{"type":"item.completed","item":{"type":"command_execution","command":"/bin/bash -lc 'id -u'"}}
{"type":"item.completed","item":{"type":"file_change","changes":[{"path":"/workspace/a","kind":"update"}]}}
{"type":"item.completed","item":{"type":"agent_message","text":"All done."}}
{"type":"turn.completed"}`,
			Report{Text: "All done.", Session: "s-1"},
			"> shell /bin/bash -lc 'id -u'\n> update /workspace/a\nAll done.\n",
		},
		"opencode": {
			`{"type":"text","sessionID":"s-1","part":{"messageID":"m1","text":"First."}}
{"type":"tool_use","sessionID":"s-1","part":{"messageID":"m1","tool":"bash","state":{"input":{"command":"id -u"}}}}
{"type":"text","sessionID":"s-1","part":{"messageID":"m2","text":"All done."}}
`,
			Report{Text: "All done.", Session: "s-1", message: "m2"},
			"First.\n> bash id -u\nAll done.\n",
		},
		"gemini": {
			`not an event
{"type":"init","session_id":"s-1"}
{"type":"message","role":"user","content":"the prompt"}
{"type":"message","role":"assistant","content":"Fir","delta":true}
{"type":"message","role":"assistant","content":"st.","delta":true}
{"type":"tool_use","tool_name":"run_shell_command","parameters":{"command":"id -u"}}
{"type":"message","role":"assistant","content":"All done.","delta":true}
{"type":"result","status":"success"}
`,
			Report{Text: "All done.", Session: "s-1"},
			"not an event\nFirst.\n> run_shell_command id -u\nAll done.\n",
		},
	} {
		for _, size := range []int{1, 7, 1 << 20} { // of a write
			got, log := readAll(t, name, c.stream, size)
			if got != c.want || log != c.log {
				t.Errorf("%s in writes of %d: %+v\n%s", name, size, got, log)
			}
		}
	}
}

func readAll(t *testing.T, name, stream string, size int) (Report, string) {
	t.Helper()
	a, err := For(name)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	r := a.NewReader(&log)
	for rest := []byte(stream); len(rest) > 0; rest = rest[min(size, len(rest)):] {
		if _, err := r.Write(rest[:min(size, len(rest))]); err != nil {
			t.Fatal(err)
		}
	}
	report, err := r.Close()
	if err != nil {
		t.Fatal(err)
	}
	return report, log.String()
}

// The program's own error reaches the report.
func TestReadersOfFailures(t *testing.T) {
	for name, stream := range map[string]string{
		"claude-code": `{"type":"result","subtype":"success","is_error":true,"result":"API Error: 403 refused"}`,
		"codex":       `{"type":"turn.failed","error":{"message":"unexpected status 403 Forbidden: refused"}}`,
		"opencode":    `{"type":"error","error":{"name":"APIError","data":{"message":"403 refused"}}}`,
		"gemini":      `{"type":"result","status":"error","error":{"message":"[API Error: 403 refused]"}}`,
	} {
		if got, _ := readAll(t, name, stream+"\n", 100); !strings.Contains(got.Error, "403") || !strings.Contains(got.Error, "refused") || got.Text != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A hostile stream has bounded cost and effect.
func TestHostileStreamIsBounded(t *testing.T) {
	for _, name := range Names()[1:] {
		long := strings.Repeat("x", maxLine+10) + "\n"
		deep := strings.Repeat(`{"type":`, 20000) + "\n"
		wrong := `{"type":{"a":1},"session_id":[],"part":7}` + "\n[]\n\"text\"\nnull\n"
		got, log := readAll(t, name, long+deep+wrong, 64<<10)
		if got.Text != "" || got.Session != "" || len(log) > 3*maxSaid {
			t.Errorf("%s: %+v, %d bytes of log", name, got, len(log))
		}
		big := `{"type":"text","part":{"messageID":"m","text":"` + strings.Repeat("é", 1<<20) + `"}}` + "\n"
		if got, _ := readAll(t, "opencode", big, 64<<10); len(got.Text) > maxText {
			t.Errorf("a text of %d bytes", len(got.Text))
		}
	}
}
