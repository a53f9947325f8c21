package operator

import (
	"bytes"
	"crypto/x509"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// verifies reports whether a client with these authorities accepts a certificate for the Service.
func verifies(t *testing.T, bundle string, leaf []byte, now time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(bundle)))
	certificate, err := x509.ParseCertificate(leaf)
	require.NoError(t, err)
	_, err = certificate.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: now, DNSName: "cluster-version-operator.openshift-cluster-version.svc",
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

func TestServingCAIsRenewedBeforeAnybodyNotices(t *testing.T) {
	const day = 24 * time.Hour
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ca, err := newServingCA(start)
	require.NoError(t, err)
	names := newServerNames("host", "openshift-cluster-version", "10.0.0.1")
	key, err := newKey()
	require.NoError(t, err)
	type served struct {
		leaf []byte
		at   time.Time
	}
	var leaves []served
	stale, signers, most := ca.bundle(), map[string]bool{}, 0
	for now := start; now.Before(start.Add(6 * 365 * day)); now = now.Add(day) {
		changed := false
		if due := ca.due(); !now.Before(due) {
			ca, changed, err = ca.renewed(now)
			require.NoError(t, err)
			require.True(t, changed, "at %s something was due", due)
		}
		_, changed, err = ca.renewed(now)
		require.NoError(t, err)
		require.False(t, changed, "one look a day is enough")
		data, err := ca.data()
		require.NoError(t, err)
		again, err := parseServingCA(data)
		require.NoError(t, err)
		require.Equal(t, ca.bundle(), again.bundle())

		leaf, err := again.sign(key, names, now)
		require.NoError(t, err)
		require.NoError(t, verifies(t, stale, leaf, now), "a client that read the bundle a day ago knows who signs")
		leaves = append(leaves, served{leaf, now})
		if now.Sub(leaves[0].at) > leafLifetime {
			leaves = leaves[1:]
		}
		// A certificate that is good on two days with the same bundle is so on those between.
		sameBundle := ca.bundle() == stale
		for _, l := range leaves {
			if age := now.Sub(l.at); age < leafLifetime && (!sameBundle || age >= leafLifetime-day) {
				require.NoError(t, verifies(t, ca.bundle(), l.leaf, now), "what was signed at %s is still served", l.at)
			}
		}
		stale = ca.bundle()
		signers[ca.current.certificate.Subject.CommonName] = true
		most = max(most, bytes.Count([]byte(stale), []byte("BEGIN")))
	}
	assert.Len(t, signers, 6, "one a year")
	assert.Equal(t, 2, most, "authorities are let go of")
}

func TestServingCAAfterALongAbsence(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ca, err := newServingCA(start)
	require.NoError(t, err)
	late := start.Add(caLifetime + time.Hour)
	renewed, changed, err := ca.renewed(late)
	require.NoError(t, err)
	assert.True(t, changed)
	assert.True(t, renewed.current.certificate.NotAfter.After(late))
	assert.NotContains(t, renewed.bundle(), ca.bundle(), "what has expired vouches for nobody")

	half, _, err := ca.renewed(start.Add(caLifetime - caRenewal + leafLifetime))
	require.NoError(t, err)
	require.NotNil(t, half.next)
	renewed, changed, err = half.renewed(late)
	require.NoError(t, err)
	assert.True(t, changed)
	assert.Equal(t, half.next, renewed.current, "the next one was made in time")
	assert.Nil(t, renewed.next)
}

func TestServingCASignsNothingThatOutlivesIt(t *testing.T) {
	start := time.Now()
	ca, err := newServingCA(start)
	require.NoError(t, err)
	key, err := newKey()
	require.NoError(t, err)
	leaf, err := ca.sign(key, newServerNames("host", "x", ""), start.Add(caLifetime-time.Hour))
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(leaf)
	require.NoError(t, err)
	assert.Equal(t, ca.current.certificate.NotAfter, certificate.NotAfter)
}

func TestParseServingCARefuses(t *testing.T) {
	ca, err := newServingCA(time.Now())
	require.NoError(t, err)
	other, err := newServingCA(time.Now())
	require.NoError(t, err)
	good, err := ca.data()
	require.NoError(t, err)
	foreign, err := other.data()
	require.NoError(t, err)
	server := newAuthority(t, "x")
	leaf, leafKey := server.issue(t, "x", x509.ExtKeyUsageServerAuth)
	for name, change := range map[string]map[string][]byte{
		"nothing":                            {corev1.TLSCertKey: nil, corev1.TLSPrivateKeyKey: nil},
		"no key":                             {corev1.TLSPrivateKeyKey: nil},
		"the key of another":                 {corev1.TLSPrivateKeyKey: foreign[corev1.TLSPrivateKeyKey]},
		"a key that is none":                 {corev1.TLSPrivateKeyKey: pemOf("PRIVATE KEY", []byte("x"))},
		"a certificate that is none":         {corev1.TLSCertKey: pemOf("CERTIFICATE", []byte("x"))},
		"two certificates":                   {corev1.TLSCertKey: append(good[corev1.TLSCertKey], foreign[corev1.TLSCertKey]...)},
		"a certificate that may not sign":    {corev1.TLSCertKey: leaf, corev1.TLSPrivateKeyKey: leafKey},
		"a next one without key":             {caNextCertKey: foreign[corev1.TLSCertKey]},
		"previous ones that nobody can read": {caPreviousCertKey: pemOf("CERTIFICATE", []byte("x"))},
		"too much":                           {"more": []byte(strings.Repeat("x", maxCAData))},
	} {
		t.Run("it refuses "+name, func(t *testing.T) {
			data := map[string][]byte{}
			for _, from := range []map[string][]byte{good, change} {
				maps.Copy(data, from)
			}
			_, err := parseServingCA(data)
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "PRIVATE")
		})
	}
	_, err = parseServingCA(good)
	require.NoError(t, err)
}

// FuzzServingCA reads whatever a Secret may hold; what is read can be written.
func FuzzServingCA(f *testing.F) {
	ca, err := newServingCA(time.Now())
	require.NoError(f, err)
	good, err := ca.data()
	require.NoError(f, err)
	f.Add(good[corev1.TLSCertKey], good[corev1.TLSPrivateKeyKey], []byte(nil))
	f.Add(good[corev1.TLSCertKey], []byte("-----BEGIN PRIVATE KEY-----"), []byte("x"))
	f.Fuzz(func(t *testing.T, certificate, key, previous []byte) {
		ca, err := parseServingCA(map[string][]byte{
			corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key, caPreviousCertKey: previous,
		})
		if err != nil {
			return
		}
		data, err := ca.data()
		require.NoError(t, err)
		again, err := parseServingCA(data)
		require.NoError(t, err)
		assert.Equal(t, ca.bundle(), again.bundle())
		_, _, err = ca.renewed(time.Now())
		require.NoError(t, err)
	})
}
