package operator

import (
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// BenchmarkOpenWithAThousandRecords measures a start with a thousand decisions.
func BenchmarkOpenWithAThousandRecords(b *testing.B) {
	o := newOffice(b)
	for i := range 1000 {
		o.ceiling("local:ann", api.Tier(i%4))
	}
	for b.Loop() {
		if err := o.open(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAuthenticate measures the authentication of a token.
func BenchmarkAuthenticate(b *testing.B) {
	o := newOffice(b)
	o.known("agent:claude")
	var text string
	for range 100 {
		text, _ = o.token("agent:claude", time.Hour)
	}
	for b.Loop() {
		if _, _, err := o.registry.Authenticate(text); err != nil {
			b.Fatal(err)
		}
	}
}
