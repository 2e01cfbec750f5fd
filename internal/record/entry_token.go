package record

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
)

type tokenKey struct{}

// WithToken returns the context of a request that came by a token. What is
// logged of it says by which.
func WithToken(ctx context.Context, id api.TokenID) context.Context {
	return context.WithValue(ctx, tokenKey{}, id)
}

// TokenOf returns the token by which a request came; empty: by none.
func TokenOf(ctx context.Context) api.TokenID {
	id, _ := ctx.Value(tokenKey{}).(api.TokenID)
	return id
}
