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

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
)

// The order of OpenShift's verifier: ConfigMaps, then spec.signatureStores if it is set, otherwise the release's stores.
func TestExclusiveStoresTakeThePlaceOfThePolicys(t *testing.T) {
	alice := newEntity(t, "alice")
	good := [][]byte{sign(t, alice, claim(digest))}
	var asked atomic.Int32
	server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		asked.Add(1)
		_, _ = w.Write(good[0])
	})
	policy := verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", alice)}, Stores: []string{server.URL + "/signatures"}}
	for _, test := range []struct {
		name      string
		local     [][]byte
		exclusive []verify.Store
		// store is where it is found; want is the error if it is not.
		store, want string
		requests    int32
	}{
		{"asks the policy's stores if there are none", nil, nil, server.URL, "", 1},
		{"finds a signature in one of them", nil, []verify.Store{memory{name: "one"}, memory{name: "two", messages: good}}, "two/", "", 0},
		{"does not go on to the policy's stores", nil, []verify.Store{memory{name: "one"}}, "", "; local: no signature found; one: no signature found", 0},
		{"asks the ConfigMaps first", good, []verify.Store{memory{name: "one", messages: good}}, "local/", "", 0},
		{"says that the list is empty", nil, verify.ClusterStores([]configv1.SignatureStore{}, nil, nil), "", "spec.signatureStores: the list is empty", 0},
		{"is content with ConfigMaps if the list is empty", good, verify.ClusterStores([]configv1.SignatureStore{}, nil, nil), "local/", "", 0},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			asked.Store(0)
			found, err := newVerifier(t, policy, verify.Sources{
				Local: []verify.Store{memory{name: "local", messages: test.local}}, Exclusive: test.exclusive,
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
	_, err := verify.New(verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", newEntity(t, "alice"))}},
		verify.Sources{Exclusive: []verify.Store{memory{name: "one"}}}, nil)
	require.NoError(t, err)
}

// waiting is a store that never answers.
type waiting struct{ name string }

func (w waiting) String() string { return w.name }

func (w waiting) Signatures(ctx context.Context, _ release.Digest) iter.Seq2[verify.Signature, error] {
	return func(yield func(verify.Signature, error) bool) {
		<-ctx.Done()
		yield(verify.Signature{}, ctx.Err())
	}
}

func TestSlowStoresHoldNobodyBack(t *testing.T) {
	alice := newEntity(t, "alice")
	var stores []verify.Store
	for n := range 31 {
		stores = append(stores, waiting{fmt.Sprintf("slow %d", n)})
	}
	stores = append(stores, memory{name: "fast", messages: [][]byte{sign(t, alice, claim(digest))}})
	// The slow ones would take an hour: the test ends only because nobody waits for them.
	found, err := newVerifier(t, verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", alice)}},
		verify.Sources{Exclusive: stores, StoreTimeout: time.Hour, SearchTimeout: time.Hour}).Verify(t.Context(), image())
	require.NoError(t, err)
	assert.Equal(t, "fast/signature-1", found[0].Store)
}

func TestAllStoresTogetherHaveADeadline(t *testing.T) {
	policy := verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", newEntity(t, "alice"))}}
	_, err := newVerifier(t, policy, verify.Sources{
		Local: []verify.Store{waiting{"local"}}, Exclusive: []verify.Store{waiting{"one"}}, StoreTimeout: time.Hour, SearchTimeout: 20 * time.Millisecond,
	}).Verify(t.Context(), image())
	require.ErrorIs(t, err, verify.ErrUnverified)
	require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller has cut nothing short")
	assert.ErrorContains(t, err, "; local: no answer within 20ms in all; one: no answer within 20ms in all")
}

// failing yields as many failures as it is told to.
type failing struct {
	times int
	text  string
}

func (failing) String() string { return "failing" }

func (f failing) Signatures(context.Context, release.Digest) iter.Seq2[verify.Signature, error] {
	return func(yield func(verify.Signature, error) bool) {
		for range f.times {
			if !yield(verify.Signature{}, errors.New(f.text)) {
				return
			}
		}
	}
}

func TestRefusalsAreBounded(t *testing.T) {
	policy := verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", newEntity(t, "alice"))}}
	_, err := newVerifier(t, policy, verify.Sources{Local: []verify.Store{failing{100_000, strings.Repeat("ä", 10_000)}}}).Verify(t.Context(), image())
	require.ErrorIs(t, err, verify.ErrUnverified)
	assert.Less(t, len(err.Error()), 10_000)
	assert.ErrorContains(t, err, "…, and 181 more, more than 200 that are no signatures, the rest is not looked at")
}

// endless is a store with one message over and over.
type endless struct{ message []byte }

func (endless) String() string { return "endless" }

func (e endless) Signatures(context.Context, release.Digest) iter.Seq2[verify.Signature, error] {
	return func(yield func(verify.Signature, error) bool) {
		for yield(verify.Signature{Name: "s", Message: e.message}, nil) {
		}
	}
}
