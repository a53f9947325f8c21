package verify_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
)

// serve answers for signature-<n> of the digest.
func serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, n int)) *httptest.Server {
	t.Helper()
	prefix := "/signatures/sha256=" + digest.Hex() + "/signature-"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, prefix))
		if err != nil {
			http.Error(w, "no such path: "+r.URL.Path, http.StatusTeapot)
			return
		}
		answer(w, r, n)
	}))
	t.Cleanup(server.Close)
	return server
}

// collect returns what a store yields, errors as "error: ...".
func collect(t *testing.T, s verify.Store) []string {
	t.Helper()
	var out []string
	for sig, err := range s.Signatures(t.Context(), digest) {
		if err != nil {
			out = append(out, "error: "+err.Error())
			continue
		}
		out = append(out, sig.Name+"="+string(sig.Message))
	}
	return out
}

func TestHTTPStore(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request, n int)
		want   []string
	}{
		{"stops at the first number that is not there", func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 3 {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write([]byte{'a' + byte(n)})
		}, []string{"signature-1=b", "signature-2=c"}},
		{"goes on after a failure, an empty body and a body that is too large", func(w http.ResponseWriter, r *http.Request, n int) {
			switch n {
			case 1:
				http.Error(w, "", http.StatusInternalServerError)
			case 2:
			case 3:
				_, _ = w.Write(bytes.Repeat([]byte("x"), verify.MaxSignatureSize+1))
			case 4:
				_, _ = w.Write([]byte("y"))
			default:
				http.NotFound(w, r)
			}
		}, []string{"error: signature-1: the server answered 500 Internal Server Error", "error: signature-3: larger than 51200 bytes", "signature-4=y"}},
		{"follows a redirect, but not for ever", func(w http.ResponseWriter, r *http.Request, n int) {
			switch {
			case n == 1 && r.URL.RawQuery == "":
				http.Redirect(w, r, r.URL.Path+"?there", http.StatusFound)
			case n == 1:
				_, _ = w.Write([]byte("z"))
			case n == 2:
				http.Redirect(w, r, r.URL.Path, http.StatusFound)
			default:
				http.NotFound(w, r)
			}
		}, []string{"signature-1=z", "error: signature-2: stopped after 5 redirects"}},
		{"asks for nine at most", func(w http.ResponseWriter, _ *http.Request, n int) {
			_, _ = w.Write([]byte(strconv.Itoa(n)))
		}, []string{
			"signature-1=1", "signature-2=2", "signature-3=3", "signature-4=4", "signature-5=5", "signature-6=6",
			"signature-7=7", "signature-8=8", "signature-9=9",
		}},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			store, _ := impatient(t, serve(t, test.answer).URL+"/signatures")
			assert.Equal(t, test.want, collect(t, store))
		})
	}
}

func TestHTTPStoreReadsNoEndlessBody(t *testing.T) {
	var stopped atomic.Bool
	server := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			http.NotFound(w, r)
			return
		}
		chunk := make([]byte, 16<<10)
		for {
			if _, err := w.Write(chunk); err != nil {
				stopped.Store(true)
				return
			}
		}
	})
	store, err := verify.OpenStore(server.URL+"/signatures/", nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"error: signature-1: larger than 51200 bytes"}, collect(t, store))
	server.Close() // Waits for the handler, which ends only when its reader has gone.
	assert.True(t, stopped.Load())
}

func TestHTTPStoreIsLazy(t *testing.T) {
	var asked atomic.Int32
	alice := newEntity(t, "alice")
	server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		asked.Add(1)
		_, _ = w.Write(sign(t, alice, claim(digest)))
	})
	policy := verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", alice)}, Stores: []string{server.URL + "/signatures"}}
	evidence, err := newVerifier(t, policy, verify.Sources{}).Verify(t.Context(), image())
	require.NoError(t, err)
	assert.Equal(t, server.URL+"/signatures/sha256="+digest.Hex()+"/signature-1", evidence[0].Store)
	assert.EqualValues(t, 1, asked.Load())
}

func TestRedirectToPlainHTTPIsRefused(t *testing.T) {
	plain := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) { _, _ = w.Write([]byte("x")) })
	server := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	t.Cleanup(server.Close)
	store, err := verify.OpenStore(server.URL, server.Client())
	require.NoError(t, err)
	assert.Contains(t, collect(t, store), "error: signature-1: refusing a redirect from https to http")
}

func TestSlowStoreHoldsNobodyBack(t *testing.T) {
	alice := newEntity(t, "alice")
	slow := serve(t, func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() })
	fast := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) { _, _ = w.Write(sign(t, alice, claim(digest))) })
	policy := verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", alice)}, Stores: []string{slow.URL + "/signatures", fast.URL + "/signatures"}}
	// The slow store would take an hour: the test ends only because nobody waits for it.
	evidence, err := newVerifier(t, policy, verify.Sources{StoreTimeout: time.Hour}).Verify(t.Context(), image())
	require.NoError(t, err)
	assert.Contains(t, evidence[0].Store, fast.URL)
}

func TestSilentStore(t *testing.T) {
	slow := serve(t, func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() })
	policy := verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", newEntity(t, "alice"))}, Stores: []string{slow.URL + "/signatures"}}
	_, err := newVerifier(t, policy, verify.Sources{StoreTimeout: 50 * time.Millisecond}).Verify(t.Context(), image())
	require.ErrorIs(t, err, verify.ErrUnverified)
	assert.ErrorContains(t, err, slow.URL+"/signatures: no answer within 50ms")
}

func TestLocalStoresComeFirst(t *testing.T) {
	alice := newEntity(t, "alice")
	var asked atomic.Int32
	server := serve(t, func(http.ResponseWriter, *http.Request, int) { asked.Add(1) })
	policy := verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", alice)}, Stores: []string{server.URL + "/signatures"}}
	second := 0
	evidence, err := newVerifier(t, policy, verify.Sources{Local: []verify.Store{
		memory{name: "first", messages: [][]byte{sign(t, alice, claim(digest))}}, memory{name: "second", asked: &second},
	}}).Verify(t.Context(), image())
	require.NoError(t, err)
	assert.Equal(t, "first/signature-1", evidence[0].Store)
	assert.Zero(t, asked.Load())
	assert.Zero(t, second)
}

// listOf lists ConfigMaps that do not change.
func listOf(maps ...verify.ConfigMapData) func(context.Context) ([]verify.ConfigMapData, error) {
	return func(context.Context) ([]verify.ConfigMapData, error) { return maps, nil }
}

func TestConfigMaps(t *testing.T) {
	hex := digest.Hex()
	maps := []verify.ConfigMapData{
		{Namespace: "n", Name: "b", BinaryData: map[string][]byte{"sha256-" + hex + "-10": []byte("ten"), "sha256-" + hex + "-2": []byte("two")}},
		{Namespace: "n", Name: "a", BinaryData: map[string][]byte{
			"sha256-" + hex: []byte("plain"), "sha256-" + hex + "-0": []byte("zero"), "sha256-" + hex + "-1": nil,
			"sha256-" + hex + "0": []byte("longer digest"), "sha256-" + hex + "-x": []byte("no number"),
			"sha256-" + hex + "-1-1": []byte("two numbers"), "sha256-" + otherDigest.Hex() + "-1": []byte("other digest"),
		}},
	}
	store := verify.NewConfigMaps(listOf(maps...))
	assert.Equal(t, []string{
		"a[sha256-" + hex + "]=plain", "a[sha256-" + hex + "-0]=zero", "b[sha256-" + hex + "-2]=two", "b[sha256-" + hex + "-10]=ten",
	}, collect(t, store))
	assert.Equal(t, "ConfigMaps in openshift-config-managed", store.String())

	broken := verify.NewConfigMaps(func(context.Context) ([]verify.ConfigMapData, error) { return nil, errors.New("forbidden") })
	assert.Equal(t, []string{"error: listing ConfigMaps: forbidden"}, collect(t, broken))
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	path := func(n int) string { return filepath.Join(dir, verify.StorePath(digest, n)) }
	require.NoError(t, os.MkdirAll(filepath.Dir(path(1)), 0o755))
	require.NoError(t, os.WriteFile(path(1), []byte("one"), 0o600))
	require.NoError(t, os.WriteFile(path(2), nil, 0o600))
	require.NoError(t, os.Mkdir(path(3), 0o755))
	require.NoError(t, os.WriteFile(path(4), make([]byte, verify.MaxSignatureSize+1), 0o600))
	require.NoError(t, os.WriteFile(path(5), []byte("five"), 0o600))
	require.NoError(t, os.WriteFile(path(7), []byte("seven"), 0o600))
	store, err := verify.OpenStore("file://"+dir, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"signature-1=one", "error: signature-3: not a regular file", "error: signature-4: larger than 51200 bytes",
		"signature-5=five",
	}, collect(t, store))
	assert.Empty(t, collect(t, verify.NewFolder(filepath.Join(dir, "missing"))))
}

func TestOpenStoreRefuses(t *testing.T) {
	for url, want := range map[string]string{
		"ftp://x/y":         `scheme "ftp"`,
		"signatures":        `scheme ""`,
		"http:///x":         "names no host",
		"file://host/x":     "not an absolute path",
		"https://[::1":      "reading signature store",
		"file:relative/dir": "not an absolute path",
	} {
		_, err := verify.OpenStore(url, nil)
		assert.ErrorContains(t, err, want, url)
	}
}

func TestManySignaturesAreBounded(t *testing.T) {
	messages := make([][]byte, 100)
	for i := range messages {
		messages[i] = []byte("noise")
	}
	alice := newEntity(t, "alice")
	messages = append(messages, sign(t, alice, claim(digest)))
	_, err := check(t, verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", alice)}}, messages...)
	// Noise is not examined, so it does not count; every piece of it is reported.
	require.NoError(t, err)

	other := newEntity(t, "other")
	for i := range messages {
		messages[i] = sign(t, other, claim(digest))
	}
	_, err = check(t, verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", alice)}}, messages...)
	require.ErrorIs(t, err, verify.ErrUnverified)
	assert.ErrorContains(t, err, "more than 64 signatures, the rest is not looked at")
}

func TestRefusalIsTheSameEveryTime(t *testing.T) {
	alice, bob := newEntity(t, "alice"), newEntity(t, "bob")
	answer := func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(sign(t, bob, claim(digest)))
	}
	one, two := serve(t, answer), serve(t, answer)
	policy := verify.Policy{
		Name: "trust.yaml", Keyrings: []verify.Keyring{keyring(t, "a", alice), keyring(t, "b", alice)},
		Stores: []string{two.URL + "/signatures", one.URL + "/signatures", "file:///nonexistent"},
	}
	v := newVerifier(t, policy, verify.Sources{Local: []verify.Store{verify.NewConfigMaps(listOf())}})
	_, err := v.Verify(t.Context(), image())
	require.Error(t, err)
	for range 5 {
		_, again := v.Verify(t.Context(), image())
		require.EqualError(t, again, err.Error())
	}
	id := bob.PrimaryKey.KeyIdString()
	remarks := ": signature-1: a: signed by key " + id + ", which is not in this keyring, signature-1: b: signed by key " + id + ", which is not in this keyring"
	urls := []string{one.URL, two.URL}
	if two.URL < one.URL {
		urls = []string{two.URL, one.URL}
	}
	assert.EqualError(t, err, "unable to verify "+string(digest)+" against keyrings: a, b (trust from trust.yaml)"+
		"; ConfigMaps in openshift-config-managed: no signature found; file:///nonexistent: no signature found"+
		"; "+urls[0]+"/signatures"+remarks+"; "+urls[1]+"/signatures"+remarks)
}

func TestImagesByTag(t *testing.T) {
	v := newVerifier(t, verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", newEntity(t, "alice"))}},
		verify.Sources{Local: []verify.Store{memory{name: "memory"}}})
	_, err := v.Verify(t.Context(), release.Image{Pullspec: "registry.example/platform/release:2.0.0"})
	require.ErrorIs(t, err, verify.ErrUnverified)
	require.ErrorContains(t, err, "release images that are not accessed via digest cannot be verified")
	_, err = v.Verify(t.Context(), release.Image{Digest: "sha256:../../etc"})
	require.ErrorIs(t, err, verify.ErrUnverified)
}

func TestCancelledSearch(t *testing.T) {
	v := newVerifier(t, verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", newEntity(t, "alice"))}, Stores: []string{"http://127.0.0.1:1/x"}},
		verify.Sources{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := v.Verify(ctx, image())
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, verify.ErrUnverified)
}
