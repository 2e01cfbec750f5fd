package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// WebhookConfig configures a webhook.
type WebhookConfig struct {
	URL     string                 // https
	Client  *http.Client           // of internal/base/egress, which bounds time and size and refuses redirects
	Secret  func() ([]byte, error) // the key of the signature, read for each message
	Version string                 // of this program
	Now     func() time.Time
}

// Webhook posts messages to a URL, signed as Standard Webhooks says
// (https://www.standardwebhooks.com): the receiver rejects what is not signed, and
// by time and id what is repeated.
type Webhook struct {
	cfg  WebhookConfig
	host string
}

// NewWebhook returns a webhook.
func NewWebhook(cfg WebhookConfig) (*Webhook, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, errors.New("webhook: want https://HOST[:PORT]/PATH")
	}
	return &Webhook{cfg, u.Host}, nil
}

// Kind implements Receiver.
func (*Webhook) Kind() string { return "webhook" }

// Place implements Receiver. The path of a URL is often a secret.
func (w *Webhook) Place() string { return "https://" + w.host }

// Send implements Receiver.
func (w *Webhook) Send(ctx context.Context, m *Message, body []byte) error {
	key, err := w.cfg.Secret()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("webhook: invalid URL")
	}
	at := strconv.FormatInt(w.cfg.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "bailiwick/"+w.cfg.Version)
	req.Header.Set("Webhook-Id", m.ID)
	req.Header.Set("Webhook-Timestamp", at)
	req.Header.Set("Webhook-Signature", Sign(key, m.ID, at, body))
	resp, err := w.cfg.Client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL
		}
		return fmt.Errorf("%s: %w", w.Place(), err)
	}
	if err := resp.Body.Close(); err != nil {
		return fmt.Errorf("%s: %w", w.Place(), err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("%s answered %d %s", w.Place(), resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil
}

// Sign returns the value of Webhook-Signature: version 1, an HMAC-SHA256 over id,
// time and body with dots between.
func Sign(key []byte, id, at string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, at, body) // a hash never fails
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// ParseSecret parses the content of a secret file. Its errors do not quote it.
func ParseSecret(content []byte) ([]byte, error) {
	text, ok := strings.CutPrefix(strings.TrimSpace(string(content)), "whsec_")
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, errors.New(`want whsec_ and 24 to 64 random bytes in base64; make it with: (umask 077; echo "whsec_$(head -c 32 /dev/urandom | base64)" > FILE)`)
	}
	return key, nil
}
