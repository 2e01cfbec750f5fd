package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

// credential is what a server over HTTP is shown. Nothing of it comes from an agent.
type credential struct {
	cfg    Config
	server Server

	mu      sync.Mutex
	token   string    // guarded by mu
	expires time.Time // guarded by mu
	before  []string  // that were replaced, which may still be valid elsewhere; guarded by mu
}

// maxBefore bounds how many replaced credentials are redacted.
const maxBefore = 16

// replaced keeps a credential that another replaces. The caller holds mu.
func (c *credential) replaced(old string) {
	if old != "" && !slices.Contains(c.before, old) {
		c.before = append(c.before, old)[max(0, len(c.before)+1-maxBefore):]
	}
}

// put sets the header of the credential, with a new access token after the server refused
// the old one.
func (c *credential) put(ctx context.Context, header http.Header, renew bool) error {
	h := c.server.HTTP
	if h.Header != nil {
		value, err := c.value(h.Header.Secret)
		if err != nil {
			return err
		}
		header.Set(h.Header.Header, h.Header.Prefix+value)
	}
	if h.OAuth != nil {
		token, err := c.accessToken(ctx, renew)
		if err != nil {
			return err
		}
		header.Set("Authorization", "Bearer "+token)
	}
	return nil
}

func (c *credential) value(name api.Name) (string, error) {
	value, ok := c.server.Secrets[name]
	if !ok {
		return "", fmt.Errorf("secret %q has no value", name)
	}
	return value, nil
}

const (
	tokenSpare   = 30 * time.Second // before the end of an access token
	tokenTime    = 10 * time.Second
	maxToken     = 64 << 10
	defaultToken = 5 * time.Minute // the life of a token whose end is not said
)

// accessToken returns a token of the OAuth grant, which it keeps until it expires.
func (c *credential) accessToken(ctx context.Context, renew bool) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Now()
	if !renew && c.token != "" && now.Before(c.expires) {
		return c.token, nil
	}
	g := c.server.HTTP.OAuth
	secret, err := c.value(g.Secret)
	if err != nil {
		return "", err
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(g.Scopes) > 0 {
		form.Set("scope", strings.Join(g.Scopes, " "))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	req.SetBasicAuth(url.QueryEscape(g.ClientID), url.QueryEscape(secret))
	client := egress.Client(egress.ClientConfig{Dial: c.cfg.Dial, Timeout: tokenTime, MaxBody: maxToken, Roots: c.cfg.Roots})
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("access token: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("access token: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("access token: %s answers HTTP %d", g.TokenURL, resp.StatusCode)
	}
	var answer struct {
		Token   string `json:"access_token"`
		Type    string `json:"token_type"`
		Expires int64  `json:"expires_in"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || !strings.EqualFold(answer.Type, "Bearer") || answer.Token == "" || strings.ContainsAny(answer.Token, "\r\n\x00") {
		return "", errors.New("access token: the answer has no bearer token")
	}
	life := time.Duration(min(max(answer.Expires, 0), 1<<20)) * time.Second
	if life == 0 {
		life = defaultToken
	}
	c.replaced(c.token)
	c.token, c.expires = answer.Token, now.Add(life-tokenSpare)
	return c.token, nil
}

// tokens lists what the credential holds beside the values of secrets.
func (c *credential) tokens() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := slices.Clone(c.before)
	if c.token != "" {
		list = append(list, c.token)
	}
	return list
}
