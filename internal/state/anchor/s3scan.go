package anchor

import (
	"context"
	"crypto/md5" //nolint:gosec // G501: see acknowledges
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
)

// sizeOf is the inverse of key.
func (s *S3) sizeOf(key string) (size uint64, ok bool) {
	var left uint64
	k, err := fmt.Sscanf(strings.TrimPrefix(key, s.cfg.Prefix), "%d-%d", &left, &size)
	return size, err == nil && k == 2 && size <= math.MaxInt64 && s.key(size) == key
}

// Scan implements Anchor. It reads every version of every object below the prefix,
// also what a delete marker hides, and compares each key with the content. It does
// not fetch a version that the store lists with the hash of what it acknowledged.
func (s *S3) Scan(ctx context.Context, known func(uint64) []byte, see func(Item) error) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	one := func(it Item, err error) error {
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			err = see(it)
		}
		if err != nil {
			cancel(err)
		}
		return err
	}
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, parallel)
	for o := range c.ListObjectsIter(ctx, s.cfg.Bucket, minio.ListObjectsOptions{Prefix: s.cfg.Prefix, WithVersions: true, Recursive: true}) {
		if o.Err != nil {
			return s.listError(ctx, o.Err)
		}
		if it, ok := s.listed(o, known); ok {
			if err := one(it, nil); err != nil {
				return err
			}
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			_ = one(s.fetch(ctx, c, o)) // cancels
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// listError judges an error of the listing: without its bucket the anchor is empty.
func (s *S3) listError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	answer, ok := errors.AsType[minio.ErrorResponse](err)
	err = fmt.Errorf("list %s: %w", s.cfg.Bucket, err)
	if ok && answer.Code == "NoSuchBucket" {
		return &UnfitError{err}
	}
	return err
}

// listed returns what the listing tells about a version, if that is enough.
func (s *S3) listed(o minio.ObjectInfo, known func(uint64) []byte) (Item, bool) {
	it := Item{Where: where(o), ID: o.VersionID}
	switch {
	case o.IsDeleteMarker, o.Key == s.cfg.Prefix && o.Size == 0: // a marker hides versions, which are listed; consoles create folders
		return Item{}, true
	case o.Size > logproof.MaxSigned:
		it.Problem = "larger than any checkpoint"
		return it, true
	}
	size, ok := s.sizeOf(o.Key)
	if !ok {
		return it, false
	}
	it.Signed = known(size)
	return it, it.Signed != nil && acknowledges(o.ETag, it.Signed)
}

func where(o minio.ObjectInfo) string {
	return fmt.Sprintf("object %q, version %q", o.Key, o.VersionID)
}

// acknowledges reports whether an ETag is that of this content. A store that makes
// ETags otherwise is asked for the content. MD5 suffices: who would pass one of the
// service's checkpoints off as another needs a second preimage.
func acknowledges(etag string, content []byte) bool {
	sum := md5.Sum(content) //nolint:gosec // G401: see above
	return strings.Trim(etag, `"`) == hex.EncodeToString(sum[:])
}

// fetch reads a version and compares its key with its content.
func (s *S3) fetch(ctx context.Context, c *minio.Client, o minio.ObjectInfo) (Item, error) {
	it := Item{Where: where(o), ID: o.VersionID}
	var err error
	if it.Signed, err = s.content(ctx, c, o); err != nil {
		answer, ok := errors.AsType[minio.ErrorResponse](err)
		if !ok || answer.StatusCode < http.StatusBadRequest || answer.StatusCode >= http.StatusInternalServerError || answer.StatusCode == http.StatusTooManyRequests {
			return it, err
		}
		it.Problem = "cannot be read: " + err.Error() // though it is listed
		return it, nil
	}
	cp, err := logproof.Peek(it.Signed)
	if err != nil {
		return it, nil //nolint:nilerr // who sees it finds that out
	}
	if size, ok := s.sizeOf(o.Key); !ok {
		it.Problem = fmt.Sprintf("its key names no checkpoint, but it holds one of %d entries", cp.Size)
	} else if size != cp.Size {
		it.Problem = fmt.Sprintf("its key names %d entries, but it holds a checkpoint of %d", size, cp.Size)
	}
	return it, nil
}

// Newest implements Anchor. It returns the first version of the first key.
func (s *S3) Newest(ctx context.Context) ([]byte, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	key, err := s.firstKey(ctx, c)
	if err != nil || key == "" {
		return nil, err
	}
	first, err := s.first(ctx, c, key)
	if err != nil {
		return nil, err
	}
	it, err := s.fetch(ctx, c, first)
	if err == nil && it.Problem != "" {
		err = fmt.Errorf("%s: %s", it.Where, it.Problem)
	}
	return it.Signed, err
}

// firstKey returns the first key of a checkpoint, which names the most entries, or
// "".
func (s *S3) firstKey(ctx context.Context, c *minio.Client) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := 0
	for o := range c.ListObjectsIter(ctx, s.cfg.Bucket, minio.ListObjectsOptions{Prefix: s.cfg.Prefix, WithVersions: true, Recursive: true, MaxKeys: 100}) {
		if o.Err != nil {
			return "", fmt.Errorf("list %s: %w", s.cfg.Bucket, o.Err)
		}
		if n++; n > maxKeys {
			return "", fmt.Errorf("bucket %s: more than %d versions of other objects come first", s.cfg.Bucket, maxKeys)
		}
		if _, ok := s.sizeOf(o.Key); ok && !o.IsDeleteMarker {
			return o.Key, nil
		}
	}
	return "", nil
}
