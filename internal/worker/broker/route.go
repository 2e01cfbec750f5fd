package broker

import (
	"net"
	"net/http"
	"strings"
)

// route answers one request of the agent by its form.
func (b *Broker) route(w http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(connKey{}).(*agentConn)
	c.requests++
	if here, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && r.URL.Host == here.String() {
		r.URL.Scheme, r.URL.Host = "", "" // an agent that does not heed NO_PROXY
	}
	switch {
	case r.Method == http.MethodConnect:
		b.connect(w, r)
	case r.URL.Host != "":
		b.forward(w, r)
	case strings.HasPrefix(r.URL.Path, modelPath):
		b.serveModel(w, r)
	case r.URL.EscapedPath() == toolsPath:
		b.serveTools(w, r)
	default:
		http.Error(w, "bailiwick: this address serves the tools of the agent at /mcp, which bailiwick-tool calls too, and the model of the dispatch below /model/NAME, and is the proxy for the hosts of its egress list; it has nothing else", http.StatusNotFound)
	}
}

// modelPath begins the paths of the model.
const modelPath = "/model/"
