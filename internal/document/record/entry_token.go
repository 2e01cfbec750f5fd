package record

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
)

type tokenKey struct{}

// WithToken returns the context of a request authenticated by a token. Entries
// that the request leads to name it.
func WithToken(ctx context.Context, id api.TokenID) context.Context {
	return context.WithValue(ctx, tokenKey{}, id)
}

// TokenOf returns the token that authenticated a request; empty if none did.
func TokenOf(ctx context.Context) api.TokenID {
	id, _ := ctx.Value(tokenKey{}).(api.TokenID)
	return id
}
