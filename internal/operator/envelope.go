package operator

import "context"

// Envelopes returns the first n records as they were handed in, in their order.
func (r *Registry) Envelopes(ctx context.Context, n int) (list [][]byte, err error) {
	err = r.stored(ctx, func(_ uint64, envelope []byte) error {
		if len(list) < n {
			list = append(list, envelope)
		}
		return nil
	})
	return list, err
}
