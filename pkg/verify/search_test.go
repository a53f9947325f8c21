package verify_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pgp "github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/store"
	"github.com/cluster-version/cvo/test/fixture/signing"
)

func TestHTTPStoreIsReadOnlyIfNeeded(t *testing.T) {
	var asked atomic.Int32
	alice := newEntity(t, "alice")
	server := signing.Serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		asked.Add(1)
		_, _ = w.Write(sign(t, alice, claim(digest)))
	})
	trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", alice)}, Stores: []string{server.URL + "/signatures"}}
	evidence, err := newVerifier(t, trust, verify.Sources{}).Verify(t.Context(), image())
	require.NoError(t, err)
	assert.Equal(t, server.URL+"/signatures/sha256="+digest.Hex()+"/signature-1", evidence[0].Store)
	assert.EqualValues(t, 1, asked.Load())
}

func TestSlowStoreOfAPolicyDoesNotDelayOthers(t *testing.T) {
	alice := newEntity(t, "alice")
	slow := signing.Serve(t, func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() })
	fast := signing.Serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) { _, _ = w.Write(sign(t, alice, claim(digest))) })
	trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", alice)}, Stores: []string{slow.URL + "/signatures", fast.URL + "/signatures"}}
	// The slow store would take an hour. The test ends early only because the verifier does not wait for it.
	evidence, err := newVerifier(t, trust, verify.Sources{StoreTimeout: time.Hour}).Verify(t.Context(), image())
	require.NoError(t, err)
	assert.Contains(t, evidence[0].Store, fast.URL)
}

func TestSilentStoreIsReportedAfterItsTimeout(t *testing.T) {
	slow := signing.Serve(t, func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() })
	trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", newEntity(t, "alice"))}, Stores: []string{slow.URL + "/signatures"}}
	_, err := newVerifier(t, trust, verify.Sources{StoreTimeout: 50 * time.Millisecond}).Verify(t.Context(), image())
	require.ErrorIs(t, err, verify.ErrUnverified)
	assert.ErrorContains(t, err, slow.URL+"/signatures: no answer within 50ms")
}

func TestLocalStoresComeFirst(t *testing.T) {
	alice := newEntity(t, "alice")
	var asked atomic.Int32
	server := signing.Serve(t, func(http.ResponseWriter, *http.Request, int) { asked.Add(1) })
	trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", alice)}, Stores: []string{server.URL + "/signatures"}}
	second := 0
	evidence, err := newVerifier(t, trust, verify.Sources{Local: []store.Store{
		memory{name: "first", messages: [][]byte{sign(t, alice, claim(digest))}}, memory{name: "second", asked: &second},
	}}).Verify(t.Context(), image())
	require.NoError(t, err)
	assert.Equal(t, "first/signature-1", evidence[0].Store)
	assert.Zero(t, asked.Load())
	assert.Zero(t, second)
}

func TestNumberOfSignaturesIsLimited(t *testing.T) {
	messages := make([][]byte, 100)
	for i := range messages {
		messages[i] = []byte("noise")
	}
	alice := newEntity(t, "alice")
	messages = append(messages, sign(t, alice, claim(digest)))
	_, err := check(t, policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", alice)}}, messages...)
	// Noise is not examined, so it does not count. Every object of it is reported.
	require.NoError(t, err)

	other := newEntity(t, "other")
	for i := range messages {
		messages[i] = sign(t, other, claim(digest))
	}
	_, err = check(t, policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", alice)}}, messages...)
	require.ErrorIs(t, err, verify.ErrUnverified)
	assert.ErrorContains(t, err, "more than 64 signatures, the rest is ignored")
}

func TestRejectionMessageIsStable(t *testing.T) {
	alice, bob := newEntity(t, "alice"), newEntity(t, "bob")
	answer := func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(sign(t, bob, claim(digest)))
	}
	one, two := signing.Serve(t, answer), signing.Serve(t, answer)
	trust := policy.Policy{
		Name: "trust.yaml", Keyrings: []openpgp.Keyring{keyring(t, "a", alice), keyring(t, "b", alice)},
		Stores: []string{two.URL + "/signatures", one.URL + "/signatures", "file:///nonexistent"},
	}
	v := newVerifier(t, trust, verify.Sources{Local: []store.Store{store.NewConfigMaps(listOf())}})
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

func TestImagesByTagAreRejected(t *testing.T) {
	v := newVerifier(t, policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", newEntity(t, "alice"))}},
		verify.Sources{Local: []store.Store{memory{name: "memory"}}})
	_, err := v.Verify(t.Context(), release.Image{Pullspec: "registry.example/platform/release:2.0.0"})
	require.ErrorIs(t, err, verify.ErrUnverified)
	require.ErrorContains(t, err, "release images that are not accessed via digest cannot be verified")
	_, err = v.Verify(t.Context(), release.Image{Digest: "sha256:../../etc"})
	require.ErrorIs(t, err, verify.ErrUnverified)
}

func TestCanceledSearchReturnsTheCancellation(t *testing.T) {
	v := newVerifier(t, policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", newEntity(t, "alice"))}, Stores: []string{"http://127.0.0.1:1/x"}},
		verify.Sources{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := v.Verify(ctx, image())
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, verify.ErrUnverified)
}

//threat:signature-stores-lie
func TestDrippingStoreTimesOut(t *testing.T) {
	slow := signing.Serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte{0x90})
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", newEntity(t, "alice"))}, Stores: []string{slow.URL + "/signatures"}}
	_, err := newVerifier(t, trust, verify.Sources{StoreTimeout: 100 * time.Millisecond}).Verify(t.Context(), image())
	require.ErrorIs(t, err, verify.ErrUnverified)
	assert.ErrorContains(t, err, "no answer within 100ms")
}

//threat:revoked-key
func TestManagedSignaturesOfARevokedKeyAreRejected(t *testing.T) {
	alice := newEntity(t, "alice")
	trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", alice)}}
	found, err := check(t, trust, sign(t, alice, claim(digest)))
	require.NoError(t, err)
	kept, changed := store.Managed{}.With(digest, found)
	require.True(t, changed)
	stored := store.NewConfigMaps(listOf(store.ConfigMapData{Namespace: api.ConfigManagedNamespace, Name: store.ManagedName, BinaryData: kept.BinaryData()}))

	verifier := func(e *pgp.Entity) *verify.Verifier {
		return newVerifier(t, policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", e)}}, verify.Sources{Local: []store.Store{stored}})
	}
	again, err := verifier(alice).Verify(t.Context(), image())
	require.NoError(t, err)
	assert.Contains(t, again[0].Store, "ConfigMap openshift-config-managed/signatures-managed key sha256-")

	require.NoError(t, alice.RevokeKey(packet.KeyCompromised, "", &packet.Config{Time: func() time.Time { return today }}))
	_, err = newVerifierOfRevoked(t, alice, stored)
	require.ErrorContains(t, err, "is revoked")
}

// newVerifierOfRevoked verifies with a keyring that contains a good key besides the revoked one, because it would be unusable otherwise.
func newVerifierOfRevoked(t *testing.T, revoked *pgp.Entity, s store.Store) ([]release.Evidence, error) {
	t.Helper()
	trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", revoked, newEntity(t, "other"))}}
	return newVerifier(t, trust, verify.Sources{Local: []store.Store{s}}).Verify(t.Context(), image())
}

//threat:fewer-signers-threshold
func TestEveryKeyringMustBeSatisfied(t *testing.T) {
	alice, bob := newEntity(t, "alice"), newEntity(t, "bob")
	trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "a", alice), keyring(t, "b", bob)}}
	byAlice, byBob := sign(t, alice, claim(digest)), sign(t, bob, claim(digest))

	evidence, err := check(t, trust, byBob, []byte("noise"), byAlice)
	require.NoError(t, err)
	require.Len(t, evidence, 2)
	assert.Equal(t, "a", evidence[0].Root)
	assert.Equal(t, "memory/signature-3", evidence[0].Store)
	assert.Equal(t, "b", evidence[1].Root)
	assert.Equal(t, "memory/signature-1", evidence[1].Store)

	_, err = check(t, trust, byAlice)
	var refused *verify.UnverifiedError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, []verify.MissingRoot{{Name: "b", Method: verify.MethodOpenPGP, Kind: "keyring"}}, refused.Missing)
}

// The order is that of OpenShift's verifier: ConfigMaps, then spec.signatureStores if set, otherwise the release's stores.
func TestExclusiveStoresReplaceTheStoresOfThePolicy(t *testing.T) {
	alice := newEntity(t, "alice")
	good := [][]byte{sign(t, alice, claim(digest))}
	var asked atomic.Int32
	server := signing.Serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		asked.Add(1)
		_, _ = w.Write(good[0])
	})
	trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", alice)}, Stores: []string{server.URL + "/signatures"}}
	for _, test := range []struct {
		name      string
		local     [][]byte
		exclusive []store.Store
		// store is the location of the signature if it is found; want is the error otherwise.
		store, want string
		requests    int32
	}{
		{"searches the policy's stores if there are no exclusive ones", nil, nil, server.URL, "", 1},
		{"finds a signature in an exclusive store", nil, []store.Store{memory{name: "one"}, memory{name: "two", messages: good}}, "two/", "", 0},
		{"does not continue with the policy's stores", nil, []store.Store{memory{name: "one"}}, "", "; local: no signature found; one: no signature found", 0},
		{"searches the ConfigMaps first", good, []store.Store{memory{name: "one", messages: good}}, "local/", "", 0},
		{"reports an empty list", nil, store.ForCluster([]configv1.SignatureStore{}, nil, nil), "", "spec.signatureStores: the list is empty", 0},
		{"verifies with ConfigMaps if the list is empty", good, store.ForCluster([]configv1.SignatureStore{}, nil, nil), "local/", "", 0},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			asked.Store(0)
			found, err := newVerifier(t, trust, verify.Sources{
				Local: []store.Store{memory{name: "local", messages: test.local}}, Exclusive: test.exclusive,
			}).Verify(t.Context(), image())
			assert.Equal(t, test.requests, asked.Load())
			if test.want != "" {
				require.ErrorIs(t, err, verify.ErrUnverified)
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			assert.Contains(t, found[0].Store, test.store)
		})
	}
}

func TestExclusiveStoresAreEnough(t *testing.T) {
	_, err := verify.New(policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", newEntity(t, "alice"))}},
		verify.Sources{Exclusive: []store.Store{memory{name: "one"}}}, nil)
	require.NoError(t, err)
}

// waiting is a store that never answers.
type waiting struct{ name string }

func (w waiting) String() string { return w.name }

func (w waiting) Signatures(ctx context.Context, _ release.Digest) iter.Seq2[store.Signature, error] {
	return func(yield func(store.Signature, error) bool) {
		<-ctx.Done()
		yield(store.Signature{}, ctx.Err())
	}
}

//threat:signature-stores-lie
func TestSlowStoresDoNotDelayOthers(t *testing.T) {
	alice := newEntity(t, "alice")
	var stores []store.Store
	for n := range 31 {
		stores = append(stores, waiting{fmt.Sprintf("slow %d", n)})
	}
	stores = append(stores, memory{name: "fast", messages: [][]byte{sign(t, alice, claim(digest))}})
	// The slow stores would take an hour. The test ends early only because the verifier does not wait for them.
	found, err := newVerifier(t, policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", alice)}},
		verify.Sources{Exclusive: stores, StoreTimeout: time.Hour, SearchTimeout: time.Hour}).Verify(t.Context(), image())
	require.NoError(t, err)
	assert.Equal(t, "fast/signature-1", found[0].Store)
}

//threat:signature-stores-lie
func TestAllStoresTogetherHaveADeadline(t *testing.T) {
	trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", newEntity(t, "alice"))}}
	_, err := newVerifier(t, trust, verify.Sources{
		Local: []store.Store{waiting{"local"}}, Exclusive: []store.Store{waiting{"one"}}, StoreTimeout: time.Hour, SearchTimeout: 20 * time.Millisecond,
	}).Verify(t.Context(), image())
	require.ErrorIs(t, err, verify.ErrUnverified)
	require.NotErrorIs(t, err, context.DeadlineExceeded, "the deadline is the verifier's own, not the caller's")
	assert.ErrorContains(t, err, "; local: no answer within 20ms in total; one: no answer within 20ms in total")
}

// failing is a store that yields a given number of failures.
type failing struct {
	times int
	text  string
}

func (failing) String() string { return "failing" }

func (f failing) Signatures(context.Context, release.Digest) iter.Seq2[store.Signature, error] {
	return func(yield func(store.Signature, error) bool) {
		for range f.times {
			if !yield(store.Signature{}, errors.New(f.text)) {
				return
			}
		}
	}
}

//threat:configmaps-full-worthless
func TestRejectionsAreBounded(t *testing.T) {
	trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", newEntity(t, "alice"))}}
	_, err := newVerifier(t, trust, verify.Sources{Local: []store.Store{failing{100_000, strings.Repeat("ä", 10_000)}}}).Verify(t.Context(), image())
	require.ErrorIs(t, err, verify.ErrUnverified)
	assert.Less(t, len(err.Error()), 10_000)
	assert.ErrorContains(t, err, "…, and 181 more, more than 200 objects that are not signatures, the rest is ignored")
}

// endless is a store that repeats one message forever.
type endless struct{ message []byte }

func (endless) String() string { return "endless" }

func (e endless) Signatures(context.Context, release.Digest) iter.Seq2[store.Signature, error] {
	return func(yield func(store.Signature, error) bool) {
		for yield(store.Signature{Name: "s", Message: e.message}, nil) {
		}
	}
}
