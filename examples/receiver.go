//go:build ignore

// Receiver shows how to receive the notifications of a webhook. It rejects a message
// that is not signed with the secret, that is older than five minutes, or that it
// has seen, and prints the others.
//
//	go run examples/receiver.go -listen 127.0.0.1:8443 -cert cert.pem -key key.pem -secret hook.key
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// message is the part of a message that this receiver shows.
type message struct {
	ID, Summary, Command string
	Untrusted            struct{ Question string }
}

type receiver struct {
	key []byte

	mu   sync.Mutex
	seen map[string]bool // ids; guarded by mu. A real receiver keeps them for a day, on disk
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 64<<10))
	id, at := req.Header.Get("Webhook-Id"), req.Header.Get("Webhook-Timestamp")
	seconds, timeErr := strconv.ParseInt(at, 10, 64)
	mac := hmac.New(sha256.New, r.key)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	var m message
	switch {
	case err != nil || timeErr != nil || !hmac.Equal([]byte(want), []byte(req.Header.Get("Webhook-Signature"))):
		http.Error(w, "not signed", http.StatusForbidden)
		return
	case time.Since(time.Unix(seconds, 0)).Abs() > 5*time.Minute:
		http.Error(w, "too old", http.StatusForbidden)
		return
	case json.Unmarshal(body, &m) != nil || m.ID != id:
		http.Error(w, "not a message", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.seen[id] { // a repetition is acknowledged, so that it is not sent again
		r.seen[id] = true
		fmt.Printf("%s\n  %s\n", m.Summary, m.Command)
		if m.Untrusted.Question != "" {
			fmt.Printf("  an agent wrote: %q\n", m.Untrusted.Question) // quoted: it must not steer the terminal
		}
	}
}

func main() {
	listen := flag.String("listen", "127.0.0.1:8443", "address")
	cert, key := flag.String("cert", "cert.pem", "certificate"), flag.String("key", "key.pem", "its key")
	secret := flag.String("secret", "hook.key", "the file that secret: of the service names")
	flag.Parse()
	text, err := os.ReadFile(*secret)
	if err != nil {
		log.Fatal(err)
	}
	r := &receiver{seen: map[string]bool{}}
	if r.key, err = base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(string(text)), "whsec_")); err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServeTLS(*listen, *cert, *key, r))
}
