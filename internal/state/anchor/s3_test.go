package anchor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

// gatewayProgram returns versitygw, an S3 server with Object Lock, and builds it
// unless make setup has.
var gatewayProgram = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs("../../../.cache/tools/versitygw-1.8.0")
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if out, err := exec.Command("make", "-C", "../../..", path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// gateway is a running versitygw with a bucket with Object Lock.
type gateway struct {
	endpoint string
	keys     S3Keys
	client   *http.Client  // like the service's
	admin    *minio.Client // with the same keys
}

const bucket = "anchors"

func newGateway(t *testing.T) *gateway {
	t.Helper()
	program, err := gatewayProgram()
	must(t, err)
	id, at := newIdentity(t), freePort(t)
	g := &gateway{endpoint: "https://" + at.String(), keys: S3Keys{"service", "a-secret-of-the-store"}}
	objects, versions := t.TempDir(), t.TempDir()
	cmd := exec.Command(program, "--port", at.String(), "--cert", id.certFile, "--key", id.keyFile, "posix", "--versioning-dir", versions, objects)
	cmd.Env = []string{"ROOT_ACCESS_KEY=" + g.keys.Access, "ROOT_SECRET_KEY=" + g.keys.Secret, "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = cmd.Stdout
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var banner bytes.Buffer
	for buf := make([]byte, 4096); !strings.Contains(banner.String(), at.String()); {
		n, err := said.Read(buf)
		banner.Write(buf[:n])
		if err != nil {
			t.Fatalf("versitygw does not start: %s", banner.String())
		}
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	d, err := egress.Only(at)
	must(t, err)
	g.client = egress.Client(egress.ClientConfig{Dial: d.DialContext, Roots: id.pool, Timeout: time.Minute})
	g.admin, err = minio.New(at.String(), &minio.Options{Creds: credentials.NewStaticV4(g.keys.Access, g.keys.Secret, ""), Secure: true, Transport: through{g.client}, Region: "us-east-1", BucketLookup: minio.BucketLookupPath})
	must(t, err)
	g.await(t)
	must(t, g.admin.MakeBucket(t.Context(), bucket, minio.MakeBucketOptions{ObjectLocking: true}))
	return g
}

// await waits until the gateway answers.
func (g *gateway) await(t *testing.T) {
	t.Helper()
	for t.Context().Err() == nil {
		_, err := g.admin.ListBuckets(t.Context())
		if err == nil {
			return
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
	}
}

func freePort(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func (g *gateway) config() S3Config {
	return S3Config{
		Name: "worm", Endpoint: g.endpoint, Region: "us-east-1", Bucket: bucket, Prefix: "log/", Client: g.client,
		Keys: func() (S3Keys, error) { return g.keys, nil }, Retain: 24 * time.Hour, Now: time.Now,
	}
}

func (g *gateway) open(t testing.TB, edits ...func(*S3Config)) *S3 {
	t.Helper()
	cfg := g.config()
	for _, edit := range edits {
		edit(&cfg)
	}
	s, err := NewS3(cfg)
	must(t, err)
	return s
}

// proves R-A6
func TestS3KeepsCheckpoints(t *testing.T) {
	g := newGateway(t)
	testKeeps(t, func() Anchor { return g.open(t) })
}

// A checkpoint cannot be removed before its lock expires, and later versions and
// delete markers do not count.
//
// proves R-A6
func TestNoAccountCanRemoveACheckpointFromS3(t *testing.T) {
	g, k := newGateway(t), newKey(t)
	s := g.open(t)
	signed := signedAt(t, k, 40, "true")
	r := put(t, s, signed)
	if r.S3.Version == "" || r.S3.Until.Before(time.Now().Add(23*time.Hour)) {
		t.Fatalf("%+v", r.S3)
	}
	ctx, key := t.Context(), r.S3.Key
	// Control: an attacker with the keys can add a version and a delete marker.
	forged := signedAt(t, k, 40, "forged") // signed with the real key
	up, err := g.admin.PutObject(ctx, bucket, key, bytes.NewReader(forged), int64(len(forged)), minio.PutObjectOptions{SendContentMd5: true})
	must(t, err)
	if up.VersionID == r.S3.Version {
		t.Fatal("control: the forgery has no version of its own")
	}
	if got := read(t, g, key, ""); got != string(forged) {
		t.Fatalf("control: the object is %q", got)
	}
	must(t, g.admin.RemoveObject(ctx, bucket, key, minio.RemoveObjectOptions{}))
	if _, err := g.admin.StatObject(ctx, bucket, key, minio.StatObjectOptions{}); err == nil {
		t.Fatal("control: the marker does not hide the object")
	}
	// But not remove the object or shorten its lock.
	for name, opts := range map[string]minio.RemoveObjectOptions{"plainly": {VersionID: r.S3.Version}, "by governance": {VersionID: r.S3.Version, GovernanceBypass: true}} {
		if err := g.admin.RemoveObject(ctx, bucket, key, opts); err == nil {
			t.Errorf("removed %s", name)
		}
	}
	sooner, mode := time.Now().Add(time.Minute), minio.Governance
	if err := g.admin.PutObjectRetention(ctx, bucket, key, minio.PutObjectRetentionOptions{VersionID: r.S3.Version, Mode: &mode, RetainUntilDate: &sooner, GovernanceBypass: true}); err == nil {
		t.Error("the lock was shortened")
	}
	if got := read(t, g, key, r.S3.Version); got != string(signed) {
		t.Errorf("the version of the receipt is %q", got)
	}
	var log bytes.Buffer
	again := g.open(t, func(c *S3Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	if got := newestOf(t, again); string(got) != string(signed) {
		t.Errorf("the newest is %q", got)
	}
	if !strings.Contains(log.String(), "later versions") || strings.Contains(log.String(), g.keys.Secret) {
		t.Errorf("logged %q", log.String())
	}
	if r, err := again.Put(ctx, forged); err == nil {
		t.Errorf("the forgery has receipt %+v", r)
	}
}

func read(t *testing.T, g *gateway, key, version string) string {
	t.Helper()
	o, err := g.admin.GetObject(t.Context(), bucket, key, minio.GetObjectOptions{VersionID: version})
	must(t, err)
	b, err := io.ReadAll(o)
	must(t, err)
	return string(b)
}

// A bucket without Object Lock is refused.
func TestABucketWithoutObjectLockGivesNoReceipt(t *testing.T) {
	g, k := newGateway(t), newKey(t)
	must(t, g.admin.MakeBucket(t.Context(), "loose", minio.MakeBucketOptions{}))
	s := g.open(t, func(c *S3Config) { c.Bucket = "loose" })
	if r, err := s.Put(t.Context(), signedAt(t, k, 1, "a")); err == nil {
		t.Errorf("%+v", r)
	}
}

// proves R-A6: errors contain no secret, and connections use only the service's
// HTTP client.
func TestS3ErrorsNameThePlaceWithoutSecrets(t *testing.T) {
	g, k := newGateway(t), newKey(t)
	wrong := S3Keys{"service", "not-the-secret-that-it-is"}
	s := g.open(t, func(c *S3Config) { c.Keys = func() (S3Keys, error) { return wrong, nil } })
	_, err := s.Put(t.Context(), signedAt(t, k, 1, "a"))
	if err == nil || strings.Contains(err.Error(), wrong.Secret) {
		t.Errorf("%v", err)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", wrong, wrong, wrong, slog.AnyValue(wrong).Resolve()); strings.Contains(text, wrong.Secret) {
		t.Errorf("printed as %s", text)
	}
	var asked atomic.Int64
	refusal := errors.New("no connections here")
	closed := &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) { asked.Add(1); return nil, refusal })}
	s = g.open(t, func(c *S3Config) { c.Client = closed })
	if _, err := s.Put(t.Context(), signedAt(t, k, 1, "a")); !errors.Is(err, refusal) {
		t.Errorf("%v", err)
	}
	if _, err := s.Newest(t.Context()); !errors.Is(err, refusal) {
		t.Errorf("%v", err)
	}
	if asked.Load() == 0 {
		t.Error("control: the client was not used")
	}
	s = g.open(t, func(c *S3Config) { c.Keys = func() (S3Keys, error) { return S3Keys{}, refusal } })
	if _, err := s.Newest(t.Context()); !errors.Is(err, refusal) {
		t.Errorf("%v", err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Other objects in the bucket are skipped, up to a limit.
func TestS3SkipsOtherObjects(t *testing.T) {
	g, k := newGateway(t), newKey(t)
	s := g.open(t)
	signed := signedAt(t, k, 7, "a")
	put(t, s, signed)
	for _, name := range []string{"log/0", "log/0000000000000000000-1", "log/000000000000000000x-9", "log/9223372036854775800-7x", "log/!", "elsewhere/x"} {
		_, err := g.admin.PutObject(t.Context(), bucket, name, strings.NewReader("x"), 1, minio.PutObjectOptions{SendContentMd5: true})
		must(t, err)
	}
	if got := newestOf(t, s); string(got) != string(signed) {
		t.Errorf("the newest is %q", got)
	}
}

func TestNewS3ValidatesTheConfiguration(t *testing.T) {
	good := (&gateway{endpoint: "https://s3.example.com"}).config()
	if _, err := NewS3(good); err != nil {
		t.Fatalf("control: %v", err)
	}
	for name, edit := range map[string]func(*S3Config){
		"in the clear":      func(c *S3Config) { c.Endpoint = "http://s3.example.com" },
		"with a path":       func(c *S3Config) { c.Endpoint += "/x" },
		"with a user":       func(c *S3Config) { c.Endpoint = "https://u:p@s3.example.com" },
		"no host":           func(c *S3Config) { c.Endpoint = "https://" },
		"a bucket above":    func(c *S3Config) { c.Bucket = "../x" },
		"a prefix above":    func(c *S3Config) { c.Prefix = "a b/" },
		"a prefix, no end":  func(c *S3Config) { c.Prefix = "log" },
		"no region":         func(c *S3Config) { c.Region = "" },
		"kept for a moment": func(c *S3Config) { c.Retain = time.Second },
	} {
		bad := good
		edit(&bad)
		if _, err := NewS3(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The largest checkpoint is listed first.
func TestKeysSortTheLargestFirst(t *testing.T) {
	s := (&gateway{endpoint: "https://s3.example.com"}).open(t)
	var keys []string
	for _, size := range []uint64{1 << 62, 1_000_000, 999_999, 10, 9, 1} {
		keys = append(keys, s.key(size))
	}
	if !slices.IsSorted(keys) {
		t.Errorf("%q", keys)
	}
}
