package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
)

// The values of the sweep. The agent's script has them as patterns that do not match
// themselves.
const (
	heldKey   = "held-key-0123456789/+abc"
	heldToken = "held-token \"quoted\"=42"
	shownText = "shown-secret/+ value=7"
)

// sweeps looks for the values wherever an agent may read, says where it found them,
// and leaks the one it holds in each way it has.
const sweeps = `
export LC_ALL=C
where() { # PATTERN: names what contains it
	for p in /proc/[0-9]*; do
		for f in environ cmdline; do grep -alE "$1" $p/$f; done
		ls -l $p/fd | grep -aqE "$1" && echo $p/fd
		while read range mode rest; do
			case $mode in r*) ;; *) continue ;; esac
			from=$((0x${range%-*})); to=$((0x${range#*-}))
			[ $((to - from)) -le 16777216 ] || continue
			dd if=$p/mem iflag=skip_bytes,count_bytes bs=65536 skip=$from count=$((to - from)) | grep -aqE "$1" && echo $p/mem
		done < $p/maps
	done
	find / \( -path /proc -o -path /usr -o -path /opt -o -path '/dev/[!s]*' \) -prune -o -type f -size -1024k -print0 | xargs -0 grep -alE "$1"
}
echo ready
until ls GATE | grep -qx open; do sleep 0.05; done
{
	where 'hel[d]-key'  | sed 's/^/key /'
	where 'hel[d]-token' | sed 's/^/token /'
	where 'show[n]-secret' | sed 's/^/shown /'
} > /tmp/found 2>/dev/null
cp /tmp/found outputs/found

echo "plain $SHOWN"
printf %s "$SHOWN" | base64
printf 'x%s' "$SHOWN" | base64
printf 'xy%s' "$SHOWN" | base64 -w 20
printf %s "$SHOWN" | od -An -v -tx1
printf %s "$SHOWN" | od -An -v -tx1 | tr -d ' \n' | tr a-f A-F
echo
for i in 1 2 3 4 5 6; do printf %s "${SHOWN:i*4-4:4}"; sleep 0.05; done
echo; echo "$HELD"
echo "value: $SHOWN" > outputs/text.txt
printf 'a\0%s' "$SHOWN" > outputs/data.bin
echo "value: $SHOWN" > a.txt
echo fine > b.txt
d="dir-$(printf %s "$SHOWN" | base64 | tr / _)"; mkdir "$d"; echo x > "$d/file"
printf '{"question": "use %s?"}' "$(printf %s "$SHOWN" | sed 's/"/\\"/g')" > .bailiwick/question.json
`

// Values that the broker or the service holds are nowhere that an agent can read; the
// one that the agent holds is nowhere in the installation, in no encoding, whatever
// the agent does with it. Controls: the agent's sweep finds the value that it holds,
// and the test's sweep finds a planted one.
//
// takeover both modes, AI client; database; one operator key: no read a secret
//
// proves R-D8, R-C3, R-D9
func TestNoValueOfASecretIsLeftAnywhere(t *testing.T) {
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n", "b.txt": "one\n"})
		must(t, os.Chmod(w.dir, 0o755)) // so that the jail's account reaches the gate
		w.mkdir("gate")
		w.init()
		w.manifest(subagent{name: "sweep", script: strings.ReplaceAll(sweeps, "GATE", w.path("gate")), more: "    model: local/small\n    limits: {tokens: 1000}\n"})
		w.replace(manifest, "\nenvs:\n", `
models:
  - {name: local, api: openai-chat, endpoint: "http://127.0.0.1:9", credential: {header: authorization, prefix: "Bearer ", secret: key}, levels: {small: tiny}}
secrets:
  - {name: key, ref: "file:key"}
  - {name: token, ref: "file:token"}
  - {name: shown, ref: "file:shown"}
envs:
  - name: tokens
    secrets:
      HELD: {secret: token, brokered: {hosts: ["api.example.com:443"], header: authorization}}
      SHOWN: {secret: shown, exposed: true}
`)
		w.replace(manifest, "envs: [colours]", "envs: [colours, tokens]")
		w.replace(manifest, "{name: local, executor: jail, level: full, mode: guarded}", "{name: local, executor: jail, level: full, mode: guarded, readOnly: ["+w.path("gate")+"]}")
		w.must("catalog", "apply", "-f", w.path(manifest))
		w.up()
		for name, v := range map[string]string{"key": heldKey, "token": heldToken, "shown": shownText} {
			if d := w.setSecret(name, v); d.status != 0 {
				t.Fatal(d)
			}
		}
		w.must("secret", "check")

		id := w.detached("sweep", "--source", "repo", "--env", "tokens")
		w.awaitLog(id, "ready")
		all := redact.New([]string{heldKey, heldToken, shownText})
		for _, path := range argumentsAndEnvironments() {
			b, _ := os.ReadFile(path) // a process may have exited
			if _, has := redact.New([]string{heldKey, heldToken}).Bytes(b); has {
				t.Errorf("%s has a value", path)
			}
		}
		w.openGate()
		d := w.awaitAsking(id)
		found := w.must("dispatch", "outputs", id, "--raw", "found")
		if strings.Contains(found, "key ") || strings.Contains(found, "token ") {
			t.Errorf("the agent finds:\n%s", found)
		}
		if !strings.Contains(found, "/environ") || !strings.Contains(found, "/mem") {
			t.Errorf("the control: the agent's sweep does not find the value that it holds:\n%s", found)
		}
		for _, what := range []string{"log", "patch", "question", "outputs/text.txt", "outputs/data.bin"} {
			if !slices.Contains(d.Outcome.Redacted, what) {
				t.Errorf("%s is not marked: %v", what, d.Outcome.Redacted)
			}
		}
		if patch := w.must("dispatch", "patch", id, "--raw"); !strings.Contains(patch, "b.txt") || strings.Contains(patch, "a.txt") {
			t.Errorf("the patch:\n%s", patch)
		}
		if log := w.must("dispatch", "logs", id); strings.Count(log, redact.Mark) < 8 {
			t.Errorf("the log:\n%s", log)
		}
		w.must("dispatch", "cancel", id)
		w.awaitEnd(id)

		w.exported(id)
		w.write("audit.json", w.must("audit", "list", "-o", "json"), 0o600)
		w.write("show.json", w.must("dispatch", "show", id, "-o", "json"), 0o600)
		w.must("down")
		if left := w.filesWith(heldKey, heldToken, shownText); len(left) > 0 {
			t.Errorf("a value is in %v", left)
		}
		for i, planted := range []string{heldKey, base64.StdEncoding.EncodeToString([]byte("xx" + heldToken)), hex.EncodeToString([]byte(shownText)), url.QueryEscape(heldToken), fmt.Sprintf("%q", heldToken)} {
			if !all.Empty() && all.Text(planted) == planted {
				t.Errorf("the control misses %q", planted)
			}
			w.write(fmt.Sprintf("state/bailiwick/planted-%d", i), "x "+planted, 0o600)
		}
		if left := w.filesWith(heldKey, heldToken, shownText); len(left) != 5 {
			t.Errorf("the control: the sweep finds %v", left)
		}
	})
}

// argumentsAndEnvironments lists those of ownProcesses but the test.
func argumentsAndEnvironments() []string {
	return slices.DeleteFunc(append(ownProcesses("cmdline"), ownProcesses("environ")...), func(p string) bool { return strings.HasPrefix(p, fmt.Sprintf("/proc/%d/", os.Getpid())) })
}

// awaitAsking waits until a dispatch has asked a question.
func (w *world) awaitAsking(id string) api.Dispatch {
	w.t.Helper()
	for late := range polling(2 * time.Minute) {
		d := w.show(id)
		if d.State == api.EventNeedsInput {
			return d
		}
		if d.State.Ended() || late {
			w.t.Fatalf("dispatch %s asks no question: %+v\n%s", id, d, w.try("dispatch", "logs", id))
		}
	}
	panic("unreachable")
}
