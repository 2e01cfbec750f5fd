package egress

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// zone is a DNS server on loopback. Each A query for a name advances to its next
// answers, up to the last. AAAA queries use the current answers.
type zone struct {
	mu      sync.Mutex
	answers map[string][][]netip.Addr // by absolute name
	asked   map[string]int            // number of A queries
}

// serve returns a resolver that queries only z.
func (z *zone) serve(t *testing.T) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z.asked = map[string]int{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply, err := z.answer(buf[:n]); err == nil {
				_, _ = pc.WriteTo(reply, from)
			}
		}
	}()
	t.Cleanup(func() { _ = pc.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

func (z *zone) answer(query []byte) ([]byte, error) {
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: head.ID, Response: true, Authoritative: true, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q},
	}
	add := func(body dnsmessage.ResourceBody) {
		reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: body})
	}
	for _, a := range z.next(strings.ToLower(q.Name.String()), q.Type) {
		switch {
		case q.Type == dnsmessage.TypeA && a.Is4():
			add(&dnsmessage.AResource{A: a.As4()})
		case q.Type == dnsmessage.TypeAAAA && !a.Is4():
			add(&dnsmessage.AAAAResource{AAAA: a.As16()})
		}
	}
	return reply.Pack()
}

func (z *zone) next(name string, kind dnsmessage.Type) []netip.Addr {
	z.mu.Lock()
	defer z.mu.Unlock()
	turns := z.answers[name]
	if len(turns) == 0 {
		return nil
	}
	i := min(z.asked[name], len(turns)-1)
	if kind == dnsmessage.TypeA {
		z.asked[name]++
	}
	return turns[i]
}

func (z *zone) count(name string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked[name]
}

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, s := range texts {
		list = append(list, netip.MustParseAddr(s))
	}
	return list
}
