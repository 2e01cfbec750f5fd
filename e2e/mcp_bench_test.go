package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkToolsCall measures sequential tools/call requests in the newest
// revision, by a minimal client. The baseline is a minimal server of the SDK: a
// tool that returns its input. Ours reads a list from the service, which
// authenticates the caller and filters by its grants; over HTTP it checks the
// token each time.
func BenchmarkToolsCall(b *testing.B) {
	echo := filepath.Join(readableB(b), "echo")
	build := exec.Command("go", "build", "-trimpath", "-o", echo, "./testdata/echo")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	w := newWebWorld(b, 0)
	service := w.status().PID
	peer := callOf("echo", `{"text":"hello"}`, "")
	list := callOf("bailiwick_envs_list", `{}`, "")
	for _, c := range []struct {
		name string
		ask  ask
		over func(*testing.B, ask, ...string) (int, func())
		args []string
	}{
		{"Stdio/Echo", peer, w.overStdio, []string{echo}},
		{"Stdio/Bailiwick", list, w.overStdio, []string{mcpProgram()}},
		{"HTTP/Echo", peer, w.overHTTP, []string{echo, "http"}},
		{"HTTP/Bailiwick", list, w.overHTTP, []string{mcpProgram(), "--http", "127.0.0.1:0", "--rate", "1000000"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			pid, call := c.over(b, c.ask, c.args...)
			for range 50 { // excludes one-time work
				call()
			}
			var took []time.Duration
			server, behind := cpuOf(b, pid), cpuOf(b, service)
			for b.Loop() {
				from := time.Now()
				call()
				took = append(took, time.Since(from))
			}
			each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(len(took)) }
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(each(cpuOf(b, pid)-server), "cpu-µs")
			b.ReportMetric(each(cpuOf(b, service)-behind), "service-cpu-µs")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func readableB(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("", "bailiwick-echo-") //nolint:usetesting // as in readable
	must(b, err)
	b.Cleanup(func() { must(b, os.RemoveAll(dir)) })
	return dir
}

// overStdio starts a server on stdio and returns how to call it.
func (w *webWorld) overStdio(b *testing.B, a ask, command ...string) (pid int, call func()) {
	b.Helper()
	cmd := w.command(command[0], command[1:]...)
	in, err := cmd.StdinPipe()
	must(b, err)
	out, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	r := bufio.NewReaderSize(out, 1<<20)
	n := 0
	return cmd.Process.Pid, func() {
		n++ // an ID is used once
		if _, err := io.WriteString(in, strings.Replace(a.body, `"id":1`, `"id":`+strconv.Itoa(n), 1)+"\n"); err != nil {
			b.Fatal(err)
		}
		line, err := r.ReadString('\n')
		if err != nil || !strings.Contains(line, `"structuredContent"`) || strings.Contains(line, `"isError":true`) {
			b.Fatalf("%v: %s", err, line)
		}
	}
}

// overHTTP starts a server on HTTP and returns how to call it over one
// connection.
func (w *webWorld) overHTTP(b *testing.B, a ask, command ...string) (pid int, call func()) {
	b.Helper()
	cmd := w.command(command[0], command[1:]...)
	errs, err := cmd.StderrPipe()
	must(b, err)
	must(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(errs).ReadString('\n')
	must(b, err)
	_, url, _ := strings.Cut(strings.TrimSpace(line), "listening at ")
	return cmd.Process.Pid, func() {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, strings.NewReader(a.body))
		must(b, err)
		for _, h := range append([]string{"Authorization: Bearer " + w.ann, "Content-Type: application/json", "Accept: application/json, text/event-stream", "Mcp-Protocol-Version: " + mcpJuly}, a.header...) {
			name, value, _ := strings.Cut(h, ": ")
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		must(b, err)
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !strings.Contains(string(text), `"structuredContent"`) || strings.Contains(string(text), `"isError":true`) {
			b.Fatalf("%v: %d %s", err, resp.StatusCode, text)
		}
	}
}

// cpuOf is the processor time of a process so far, in kernel ticks of 10 ms:
// too coarse for one call, precise enough for thousands.
func cpuOf(t testing.TB, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] { // user and system
		n, err := strconv.Atoi(f)
		must(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
