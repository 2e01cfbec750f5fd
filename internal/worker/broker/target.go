package broker

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

// target is a host and port outside of the jail.
type target struct {
	host string // in lower case, without brackets
	port uint16
}

// parseTarget parses HOST:PORT, or HOST with the port of a scheme.
func parseTarget(hostport, scheme string) (t target, err error) {
	if bare := strings.Trim(hostport, "[]"); egress.CheckHost(bare) == nil && scheme != "" {
		hostport = net.JoinHostPort(bare, map[string]string{"http": "80", "https": "443"}[scheme])
	}
	t.host, t.port, err = egress.ParseTarget(hostport)
	return t, err
}

func (t target) String() string { return net.JoinHostPort(t.host, strconv.Itoa(int(t.port))) }

// isAddress reports whether t is an IP address.
func (t target) isAddress() bool {
	_, err := netip.ParseAddr(t.host)
	return err == nil
}

// authority returns t as the Host of a request.
func (t target) authority(scheme string) string {
	host := t.host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if scheme == "https" && t.port == 443 || scheme == "http" && t.port == 80 {
		return host
	}
	return host + ":" + strconv.Itoa(int(t.port))
}

// parseRules parses an egress list.
func parseRules(list []string) ([]egress.Rule, error) {
	rules := make([]egress.Rule, len(list))
	for i, text := range list {
		var err error
		if rules[i], err = egress.ParseRule(text); err != nil {
			return nil, fmt.Errorf("broker: egress: %w", err)
		}
	}
	return rules, nil
}

func matches(rules []egress.Rule, t target) bool {
	for _, r := range rules {
		if r.Matches(t.host, t.port) {
			return true
		}
	}
	return false
}

// quota counts what an attempt exchanges with each host.
type quota struct {
	bounds

	mu    sync.Mutex
	hosts map[target]*use
}

type use struct{ requests, bytes int64 }

// request counts a request to t, and says why it may not be made.
func (q *quota) request(t target) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.hosts[t]
	if u == nil {
		u = &use{}
		q.hosts[t] = u
	}
	u.requests++
	switch {
	case u.requests > q.hostRequests:
		return fmt.Errorf("the dispatch has made more than %d requests to this host", q.hostRequests)
	case u.bytes > q.hostBytes:
		return errHostBytes
	}
	return nil
}

// bytes counts n bytes to or from t.
func (q *quota) bytes(t target, n int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.hosts[t]
	u.bytes += n
	if u.bytes > q.hostBytes {
		return errHostBytes
	}
	return nil
}

var errHostBytes = errors.New("the byte limit for this host is exceeded")
