package broker

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// told collects what a broker says about the connection to its model.
type told struct {
	mu  sync.Mutex
	all []*api.Unreachable
}

func (l *told) add(u *api.Unreachable) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, u)
}

func (l *told) list() []*api.Unreachable {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

// A model that cannot be connected to is reported with its host at each try, and once it
// can be again. The control is a model that answers with an error.
func TestAnUnreachableModelIsReported(t *testing.T) {
	var reports told
	refuse := true
	w := newModelWorld(t, api.AnthropicMessages, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, func(cfg *Config) {
		cfg.Unreachable = reports.add
		cfg.Model.Endpoint, cfg.Model.Loopback = "https://api.example", netip.AddrPort{}
		cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
	})
	w.do("POST", "/v1/messages", anthropicBody)
	w.do("POST", "/v1/messages", anthropicBody)
	all := reports.list()
	if len(all) != 2 || all[0] == nil || all[1] == nil {
		t.Fatalf("told %+v", all)
	}
	first, second := *all[0], *all[1]
	if first.Model != "big" || first.Host != "api.example:443" || first.Tries != 1 || !strings.HasSuffix(first.Error, "connection refused") || time.Since(first.Since) > time.Minute {
		t.Errorf("first %+v", first)
	}
	if first.Tries++; second != first {
		t.Errorf("second %+v, want %+v", second, first)
	}

	var local told
	w = newModelWorld(t, api.AnthropicMessages, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, func(cfg *Config) {
		cfg.Unreachable = local.add
	})
	dial := w.proxy.client
	w.proxy.client = roundTrip(func(r *http.Request) (*http.Response, error) {
		if refuse {
			return nil, syscall.ECONNREFUSED
		}
		return dial.RoundTrip(r)
	})
	w.do("POST", "/v1/messages", anthropicBody)
	refuse = false
	w.do("POST", "/v1/messages", anthropicBody)
	w.do("POST", "/v1/messages", anthropicBody)
	if all := local.list(); len(all) != 2 || all[0] == nil || all[0].Host != strings.TrimPrefix(w.upstream.URL, "http://") || all[1] != nil {
		t.Errorf("told %+v, want a failed try, then that it is reached", all)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A host that takes no connection, or none with TLS, is reported in a bounded time.
func TestAConnectionToTheModelIsBounded(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close() //nolint:errcheck // the test is over
	for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){
		"no TCP": func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"no TLS": func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", mute.Addr().String())
		},
	} {
		t.Run(name, func(t *testing.T) {
			var reports told
			w := newModelWorld(t, api.AnthropicMessages, honest, func(cfg *Config) {
				cfg.Unreachable = reports.add
				cfg.Model.Endpoint, cfg.Model.Loopback = "https://api.example", netip.AddrPort{}
				cfg.Dial = dial
			})
			w.proxy.connect = 50 * time.Millisecond
			status, body := w.do("POST", "/v1/messages", anthropicBody)
			if status != http.StatusBadGateway || !strings.Contains(body, "no connection to api.example:443 within 50ms") {
				t.Errorf("%d %s", status, body)
			}
			if all := reports.list(); len(all) != 1 || all[0] == nil || all[0].Tries != 1 || !strings.Contains(all[0].Error, "no connection to api.example:443") {
				t.Errorf("told %+v", all)
			}
			if u := w.Usage(); u.Uncounted != 0 {
				t.Errorf("%d requests are uncounted, though the model has none", u.Uncounted)
			}
		})
	}
	ended := errors.New("the dial did not end")
	dial := dialWithin(func(ctx context.Context, _, _ string) (net.Conn, error) {
		if _, ok := ctx.Deadline(); ok {
			ended = nil
		}
		return nil, ctx.Err()
	}, modelDial)
	if _, _ = dial(t.Context(), "tcp", "api.example:443"); ended != nil || modelDial >= modelConnect || modelConnect >= 10*time.Second {
		t.Error("the dial has no bound, or a person learns of it too late:", ended)
	}
}
