package anchor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// S3Config configures an S3 anchor.
type S3Config struct {
	Name     string
	Endpoint string // https://HOST[:PORT]
	Region   string // for signing requests
	Bucket   string // created with Object Lock
	Prefix   string // of the objects' keys; empty, or ends in a slash
	Client   *http.Client
	Keys     func() (S3Keys, error) // called for every exchange
	Retain   time.Duration          // how long an object is locked
	Now      func() time.Time
	Logger   *slog.Logger
}

// S3Keys are the credentials of an account.
type S3Keys struct{ Access, Secret string }

// LogValue implements slog.LogValuer. It hides the secret.
func (k S3Keys) LogValue() slog.Value { return slog.StringValue(k.String()) }

func (k S3Keys) String() string { return "access key " + k.Access }

// GoString implements fmt.GoStringer. It hides the secret.
func (k S3Keys) GoString() string { return k.String() }

// S3 is an anchor that stores each checkpoint as an object under Object Lock in
// mode COMPLIANCE, so that no account can remove it before the lock expires.
//
// Object Lock does not prevent later versions, or a delete marker that hides all
// of them. So Put creates an object only if its key is unused, and the first
// version of a key counts, which Put reads back.
type S3 struct{ cfg S3Config }

var (
	bucketPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixPattern = regexp.MustCompile(`^([A-Za-z0-9._-]+/)*$`)
	regionPattern = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
)

// NewS3 validates the configuration. It sends nothing.
func NewS3(cfg S3Config) (*S3, error) {
	u, err := url.Parse(cfg.Endpoint)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "" || cfg.Endpoint != "https://"+u.Host:
		return nil, fmt.Errorf("endpoint %q: want https://HOST[:PORT]", cfg.Endpoint)
	case !bucketPattern.MatchString(cfg.Bucket):
		return nil, fmt.Errorf("bucket %q: want 3 to 63 of a-z, 0-9, dot and hyphen", cfg.Bucket)
	case !prefixPattern.MatchString(cfg.Prefix) || len(cfg.Prefix) > 512:
		return nil, fmt.Errorf("prefix %q: want path elements of A-Z, a-z, 0-9, ., _ and -, each followed by a slash", cfg.Prefix)
	case !regionPattern.MatchString(cfg.Region):
		return nil, fmt.Errorf("region %q: want a word such as us-east-1", cfg.Region)
	case cfg.Retain < time.Hour:
		return nil, fmt.Errorf("retain %s: want at least 1h", cfg.Retain)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &S3{cfg}, nil
}

// ID implements Anchor.
func (s *S3) ID() ID {
	return ID{s.cfg.Name, receipt.S3, s.cfg.Endpoint + "/" + s.cfg.Bucket + "/" + s.cfg.Prefix}
}

// through sends the requests of the S3 library with our client, which bounds
// them and filters addresses.
type through struct{ client *http.Client }

func (t through) RoundTrip(r *http.Request) (*http.Response, error) { return t.client.Do(r) } //nolint:gosec // G704: the configuration says where to, and the client judges it

func (s *S3) client() (*minio.Client, error) {
	keys, err := s.cfg.Keys()
	if err != nil {
		return nil, err
	}
	return minio.New(strings.TrimPrefix(s.cfg.Endpoint, "https://"), &minio.Options{
		Creds: credentials.NewStaticV4(keys.Access, keys.Secret, ""), Secure: true, Transport: through{s.cfg.Client},
		Region: s.cfg.Region, BucketLookup: minio.BucketLookupPath, MaxRetries: 1,
	})
}

// key returns the key of a checkpoint's object. The largest is listed first; the
// size follows for human readers.
func (s *S3) key(size uint64) string {
	return fmt.Sprintf("%s%019d-%d", s.cfg.Prefix, math.MaxInt64-size, size)
}

// Put implements Anchor.
func (s *S3) Put(ctx context.Context, signed []byte) (receipt.Receipt, error) {
	cp, err := logproof.Peek(signed)
	if err != nil {
		return receipt.Receipt{}, err
	}
	c, err := s.client()
	if err != nil {
		return receipt.Receipt{}, err
	}
	key := s.key(cp.Size)
	until := s.cfg.Now().Add(s.cfg.Retain).UTC().Truncate(time.Second)
	opts := minio.PutObjectOptions{
		ContentType: "text/plain; charset=utf-8", Mode: minio.Compliance, RetainUntilDate: until, SendContentMd5: true, DisableMultipart: true,
	}
	opts.SetMatchETagExcept("*") // If-None-Match: only if the key is unused
	_, err = c.PutObject(ctx, s.cfg.Bucket, key, bytes.NewReader(signed), int64(len(signed)), opts)
	atLeast := until.Add(-time.Second)
	if err != nil {
		atLeast = s.cfg.Now() // an earlier attempt stored it
	}
	if err != nil && minio.ToErrorResponse(err).StatusCode != http.StatusPreconditionFailed {
		return receipt.Receipt{}, fmt.Errorf("put %s: %w", key, err)
	}
	// An earlier attempt whose answer was lost may have stored it, so verify what
	// is stored.
	first, err := s.first(ctx, c, key)
	if err != nil {
		return receipt.Receipt{}, err
	}
	there, err := s.content(ctx, c, first)
	if err != nil {
		return receipt.Receipt{}, err
	}
	if !bytes.Equal(there, signed) {
		other, err := logproof.Peek(there)
		if err != nil || other != cp {
			return receipt.Receipt{}, fmt.Errorf("object %s: its first version, %s, is not a checkpoint of this log", key, first.VersionID)
		}
		signed = there // the same checkpoint with another signature
	}
	until, err = s.lockedUntil(ctx, c, first, atLeast)
	if err != nil {
		return receipt.Receipt{}, err
	}
	r := newReceipt(s.ID(), s.cfg.Now(), signed)
	r.S3 = &receipt.Object{Key: key, Version: first.VersionID, ETag: first.ETag, Until: until}
	return r, r.Validate()
}

// lockedUntil returns the time until which an object is locked, from the headers
// of its version. (Stores disagree about the retention document.)
func (s *S3) lockedUntil(ctx context.Context, c *minio.Client, o minio.ObjectInfo, atLeast time.Time) (time.Time, error) {
	st, err := c.StatObject(ctx, s.cfg.Bucket, o.Key, minio.StatObjectOptions{VersionID: o.VersionID})
	if err != nil {
		return time.Time{}, fmt.Errorf("object %s: %w", o.Key, err)
	}
	until, err := time.Parse(time.RFC3339Nano, st.Metadata.Get("X-Amz-Object-Lock-Retain-Until-Date"))
	if mode := st.Metadata.Get("X-Amz-Object-Lock-Mode"); err != nil || mode != string(minio.Compliance) || until.Before(atLeast) {
		return time.Time{}, fmt.Errorf("object %s: the store does not lock it in mode COMPLIANCE for as long as requested; create the bucket with Object Lock", o.Key)
	}
	return until.UTC(), nil
}

// first returns the first version of a key. Versions are listed newest first.
func (s *S3) first(ctx context.Context, c *minio.Client, key string) (minio.ObjectInfo, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var first minio.ObjectInfo
	n := 0
	for o := range c.ListObjectsIter(ctx, s.cfg.Bucket, minio.ListObjectsOptions{Prefix: key, WithVersions: true, Recursive: true}) {
		if o.Err != nil {
			return first, fmt.Errorf("list %s: %w", key, o.Err)
		}
		if n++; n > maxVersions {
			return first, fmt.Errorf("object %s: more than %d versions", key, maxVersions)
		}
		if o.Key == key && !o.IsDeleteMarker {
			first = o
		}
	}
	switch {
	case first.Key == "":
		return first, fmt.Errorf("object %s: not found", key)
	case first.VersionID == "" || first.VersionID == "null":
		return first, fmt.Errorf("object %s: has no version; create the bucket with versioning and Object Lock", key)
	case n > 1:
		s.cfg.Logger.WarnContext(ctx, "a checkpoint has later versions or delete markers; its first version counts", slog.String("anchor", s.cfg.Name), slog.String("object", key), slog.Int("versions", n))
	}
	return first, nil
}

const (
	// maxVersions and maxKeys bound what another writer to the bucket can make us
	// read.
	maxVersions = 1000
	maxKeys     = 1000
	// parallel is how many objects Scan fetches at once.
	parallel = 8
)

func (s *S3) content(ctx context.Context, c *minio.Client, o minio.ObjectInfo) (b []byte, err error) {
	r, err := c.GetObject(ctx, s.cfg.Bucket, o.Key, minio.GetObjectOptions{VersionID: o.VersionID})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if b, err = io.ReadAll(io.LimitReader(r, logproof.MaxSigned+1)); err != nil {
		return nil, fmt.Errorf("read %s: %w", o.Key, err)
	}
	return b, nil
}
