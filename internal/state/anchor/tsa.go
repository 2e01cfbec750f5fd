package anchor

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// TSAConfig configures a time-stamp authority.
type TSAConfig struct {
	Name   string
	URL    string
	Client *http.Client // bounded in time and size
	// Roots verify the authority's certificate here. Auditors choose their own.
	Roots []*x509.Certificate
	Now   func() time.Time
}

// TSA is an anchor that time-stamps checkpoints. It holds none, so the log cannot
// be compared with it later; its receipts alone prove a time.
type TSA struct{ cfg TSAConfig }

// NewTSA validates the configuration. It sends nothing.
func NewTSA(cfg TSAConfig) (*TSA, error) {
	if len(cfg.Roots) == 0 {
		return nil, errors.New("roots: at least one certificate is required")
	}
	return &TSA{cfg}, nil
}

// ID implements Anchor.
func (a *TSA) ID() ID { return ID{a.cfg.Name, receipt.TSA, a.cfg.URL} }

// Newest implements Anchor.
func (a *TSA) Newest(context.Context) ([]byte, error) { return nil, nil }

// Scan implements Anchor.
func (a *TSA) Scan(context.Context, func(uint64) []byte, func(Item) error) error { return nil }

// Put implements Anchor.
func (a *TSA) Put(ctx context.Context, signed []byte) (receipt.Receipt, error) {
	request, asked, err := receipt.Ask(signed)
	if err != nil {
		return receipt.Receipt{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.cfg.URL, bytes.NewReader(request))
	if err != nil {
		return receipt.Receipt{}, err
	}
	req.Header.Set("Content-Type", "application/timestamp-query")
	req.Header.Set("Accept", "application/timestamp-reply")
	resp, err := a.cfg.Client.Do(req)
	if err != nil {
		return receipt.Receipt{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if resp.StatusCode != http.StatusOK {
		return receipt.Receipt{}, fmt.Errorf("%s answers %s", a.cfg.URL, resp.Status)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, receipt.MaxAnswer+1))
	if err != nil {
		return receipt.Receipt{}, err
	}
	token, _, err := asked.Answer(answer, a.cfg.Roots)
	if err != nil {
		return receipt.Receipt{}, err
	}
	r := newReceipt(a.ID(), a.cfg.Now(), signed)
	r.TSA = &receipt.Token{Token: token}
	return r, r.Validate()
}
