package carry_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/carry"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/store"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
)

// controlPlane is shared by all tests in the package; each test uses its own digest.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// imageOf returns an image whose digest repeats a single hex digit.
func imageOf(digit string) release.Image {
	return release.Image{Pullspec: "registry.example/platform/release:1.0.0", Digest: release.Digest("sha256:" + strings.Repeat(digit, 64))}
}

func newSigner(t *testing.T, name string, opts fixture.SignerOptions) *fixture.Signer {
	t.Helper()
	signer, err := fixture.NewSigner(name, opts)
	require.NoError(t, err)
	return signer
}

func sign(t *testing.T, signer *fixture.Signer, img release.Image) []byte {
	t.Helper()
	message, err := signer.Sign(img)
	require.NoError(t, err)
	return message
}

// trusting returns a policy that trusts a signer, with stores.
func trusting(t *testing.T, signer *fixture.Signer, stores ...string) policy.Policy {
	t.Helper()
	text, err := signer.Trust(stores...)
	require.NoError(t, err)
	trust, err := policy.Parse("trust.yaml", text)
	require.NoError(t, err)
	return trust
}

// folder is a store with messages by image.
type folder struct {
	t   *testing.T
	dir string
}

func (f folder) add(img release.Image, messages ...[]byte) {
	f.t.Helper()
	require.NoError(f.t, carry.Store(f.t.Context(), f.dir, img.Digest, messages))
}

// stored returns the messages about an image in a folder, in order.
func stored(t *testing.T, dir string, img release.Image) [][]byte {
	t.Helper()
	var messages [][]byte
	for s, err := range store.NewFolder(dir).Signatures(t.Context(), img.Digest) {
		require.NoError(t, err)
		messages = append(messages, s.Message)
	}
	return messages
}

func TestCollectKeepsAcceptedSignatures(t *testing.T) {
	img, other := imageOf("1"), imageOf("2")
	team := newSigner(t, "team", fixture.SignerOptions{})
	stranger := newSigner(t, "stranger", fixture.SignerOptions{})
	good, second := sign(t, team, img), sign(t, team, img)
	for _, tt := range []struct {
		name string
		here [][]byte
		want [][]byte
	}{
		{"keeps a signature by a trusted key", [][]byte{good}, [][]byte{good}},
		{"keeps several signatures in order", [][]byte{good, second}, [][]byte{good, second}},
		{"drops a signature by another key", [][]byte{sign(t, stranger, img), good}, [][]byte{good}},
		{"drops a signature of another image", [][]byte{sign(t, team, other)}, nil},
		{"drops a message without a signature", [][]byte{[]byte("signed, the team")}, nil},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			dir := folder{t, t.TempDir()}
			dir.add(img, tt.here...)
			got, err := carry.Collect(t.Context(), trusting(t, team, "file://"+dir.dir), verify.Sources{}, []release.Digest{img.Digest, other.Digest})
			require.NoError(t, err)
			assert.Equal(t, tt.want, got[img.Digest])
			assert.Empty(t, got[other.Digest])
		})
	}
}

func TestCollectSearchesEveryStore(t *testing.T) {
	img := imageOf("3")
	team := newSigner(t, "team", fixture.SignerOptions{})
	local, remote := sign(t, team, img), sign(t, team, img)
	near, far := folder{t, t.TempDir()}, folder{t, t.TempDir()}
	near.add(img, local)
	far.add(img, local, remote)
	server := httptest.NewServer(http.FileServer(http.Dir(far.dir)))
	defer server.Close()

	got, err := carry.Collect(t.Context(), trusting(t, team, server.URL),
		verify.Sources{Local: []store.Store{store.NewFolder(near.dir)}, Client: server.Client()}, []release.Digest{img.Digest})

	require.NoError(t, err)
	assert.Equal(t, map[release.Digest][][]byte{img.Digest: {local, remote}}, got, "a message in two stores is returned once")
}

func TestCollectKeepsSignaturesOfEachKeyring(t *testing.T) {
	img := imageOf("4")
	team, partner := newSigner(t, "team", fixture.SignerOptions{}), newSigner(t, "partner", fixture.SignerOptions{})
	dir := folder{t, t.TempDir()}
	message := sign(t, partner, img)
	dir.add(img, message)
	trust := trusting(t, team, "file://"+dir.dir)
	trust.Keyrings = append(trust.Keyrings, trusting(t, partner).Keyrings...)

	got, err := carry.Collect(t.Context(), trust, verify.Sources{}, []release.Digest{img.Digest})

	require.NoError(t, err)
	assert.Equal(t, [][]byte{message}, got[img.Digest], "the mirror may receive the other keyring's signature later")
}

func TestCollectRejectsUnknownStores(t *testing.T) {
	trust := policy.Policy{Stores: []string{"ftp://example.com/signatures"}}
	_, err := carry.Collect(t.Context(), trust, verify.Sources{}, []release.Digest{imageOf("5").Digest})
	require.Error(t, err)

	got, err := carry.Collect(t.Context(), policy.Policy{}, verify.Sources{}, []release.Digest{imageOf("5").Digest})
	require.NoError(t, err)
	assert.Empty(t, got, "without a policy, there are no signatures")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = carry.Collect(ctx, policy.Policy{}, verify.Sources{}, []release.Digest{imageOf("5").Digest})
	assert.ErrorIs(t, err, context.Canceled)
}

func TestStoreAddsMissingSignaturesOnly(t *testing.T) {
	img, dir := imageOf("6"), t.TempDir()
	require.NoError(t, carry.Store(t.Context(), dir, img.Digest, [][]byte{[]byte("a"), []byte("b")}))
	require.NoError(t, carry.Store(t.Context(), dir, img.Digest, [][]byte{[]byte("b"), []byte("c"), []byte("a")}))
	assert.Equal(t, [][]byte{[]byte("a"), []byte("b"), []byte("c")}, stored(t, dir, img))
	assert.Empty(t, stored(t, dir, imageOf("7")))
}

func TestConfigMapAddsMissingSignaturesOnly(t *testing.T) {
	img := imageOf("8")
	first, err := carry.ConfigMap(nil, img.Digest, [][]byte{[]byte("a")})
	require.NoError(t, err)
	assert.Equal(t, api.ConfigManagedNamespace, first.Namespace)
	assert.Contains(t, first.Labels, api.VerificationSignatureLabel, "clusters select signatures by this label")

	second, err := carry.ConfigMap(first, img.Digest, [][]byte{[]byte("a"), []byte("b")})
	require.NoError(t, err)
	assert.Equal(t, map[string][]byte{
		store.ConfigMapKey(img.Digest, 1): []byte("a"), store.ConfigMapKey(img.Digest, 2): []byte("b"),
	}, second.BinaryData)
	assert.Len(t, first.BinaryData, 1, "the given ConfigMap is unchanged")

	_, err = carry.ConfigMap(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, img.Digest, [][]byte{[]byte("a")})
	require.ErrorContains(t, err, "choose another file")

	none, err := carry.ConfigMap(nil, img.Digest, nil)
	require.NoError(t, err)
	assert.Nil(t, none, "without signatures, there is no ConfigMap")
}

// racing is a client that races with another writer, which updates the ConfigMap before each of the first updates.
type racing struct {
	client.Client
	updates, races int
	other          func(context.Context) error
}

func (r *racing) Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error {
	if r.updates++; r.updates <= r.races {
		if err := r.other(ctx); err != nil {
			return err
		}
	}
	return r.Client.Update(ctx, object, opts...)
}

func newCluster(t *testing.T) client.Client {
	t.Helper()
	cluster, err := client.New(controlPlane.For(t).Config("carry-test"), client.Options{})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.ConfigManagedNamespace}}
	if err := cluster.Create(t.Context(), namespace); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	return cluster
}

// messagesIn returns the messages about a digest in a cluster, sorted.
func messagesIn(t *testing.T, cluster client.Client, digest release.Digest) []string {
	t.Helper()
	var cm corev1.ConfigMap
	key := client.ObjectKey{Namespace: api.ConfigManagedNamespace, Name: "sha256-" + digest.Hex()}
	require.NoError(t, cluster.Get(t.Context(), key, &cm))
	assert.Contains(t, cm.Labels, api.VerificationSignatureLabel)
	var messages []string
	for _, m := range cm.BinaryData {
		messages = append(messages, string(m))
	}
	slices.Sort(messages)
	return messages
}

func TestApplyExtendsTheConfigMap(t *testing.T) {
	cluster, digest := newCluster(t), imageOf("a").Digest
	apply := func(overwrite bool, messages ...string) string {
		t.Helper()
		var raw [][]byte
		for _, m := range messages {
			raw = append(raw, []byte(m))
		}
		done, err := carry.Apply(t.Context(), cluster, digest, raw, overwrite)
		require.NoError(t, err)
		return done
	}
	assert.Equal(t, "created", apply(false, "a"))
	assert.Equal(t, []string{"a"}, messagesIn(t, cluster, digest))
	assert.Equal(t, "configured", apply(false, "a", "b"))
	assert.Equal(t, []string{"a", "b"}, messagesIn(t, cluster, digest))
	assert.Equal(t, "configured", apply(true, "c"))
	assert.Equal(t, []string{"c"}, messagesIn(t, cluster, digest), "overwriting drops existing messages")
}

func TestApplyKeepsSignaturesOfAnotherWriter(t *testing.T) {
	cluster, digest := newCluster(t), imageOf("b").Digest
	_, err := carry.Apply(t.Context(), cluster, digest, [][]byte{[]byte("first")}, false)
	require.NoError(t, err)
	contested := &racing{Client: cluster, races: 1, other: func(ctx context.Context) error {
		_, err := carry.Apply(ctx, cluster, digest, [][]byte{[]byte("other")}, false)
		return err
	}}

	done, err := carry.Apply(t.Context(), contested, digest, [][]byte{[]byte("ours")}, false)

	require.NoError(t, err)
	assert.Equal(t, "configured", done)
	assert.Equal(t, []string{"first", "other", "ours"}, messagesIn(t, cluster, digest))
	assert.Equal(t, 2, contested.updates, "the conflict is retried once")
}

func TestApplyReturnsErrorsOfTheCluster(t *testing.T) {
	user, err := controlPlane.For(t).User("stranger")
	require.NoError(t, err)
	cluster, err := client.New(user, client.Options{})
	require.NoError(t, err)
	_, err = carry.Apply(t.Context(), cluster, imageOf("c").Digest, [][]byte{[]byte("a")}, false)
	assert.True(t, apierrors.IsForbidden(err), "%v", err)
}
