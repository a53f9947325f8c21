package certificate

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

// verifies returns nil if a client with these CAs accepts a certificate for the Service.
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

func TestServingCARenewalDoesNotInterruptClients(t *testing.T) {
	const day = 24 * time.Hour
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ca, err := newAuthority(service, start)
	require.NoError(t, err)
	names := newServerNames("host", Options{Service: service, Namespace: "openshift-cluster-version", PodIP: "10.0.0.1"})
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
		require.False(t, changed, "one check per day is enough")
		data, err := ca.data()
		require.NoError(t, err)
		again, err := parseAuthority(service, data)
		require.NoError(t, err)
		require.Equal(t, ca.bundle(), again.bundle())

		leaf, err := again.sign(key, names, now)
		require.NoError(t, err)
		require.NoError(t, verifies(t, stale, leaf, now), "a bundle from a day ago contains the current signer")
		leaves = append(leaves, served{leaf, now})
		if now.Sub(leaves[0].at) > leafLifetime {
			leaves = leaves[1:]
		}
		// A certificate that is valid on two days with the same bundle is also valid in between.
		sameBundle := ca.bundle() == stale
		for _, l := range leaves {
			if age := now.Sub(l.at); age < leafLifetime && (!sameBundle || age >= leafLifetime-day) {
				require.NoError(t, verifies(t, ca.bundle(), l.leaf, now), "the certificate signed at %s may still be in use", l.at)
			}
		}
		stale = ca.bundle()
		signers[ca.current.certificate.Subject.CommonName] = true
		most = max(most, bytes.Count([]byte(stale), []byte("BEGIN")))
	}
	assert.Len(t, signers, 6, "one CA per year")
	assert.Equal(t, 2, most, "old CAs are removed")
}

func TestExpiredServingCAIsReplaced(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ca, err := newAuthority(service, start)
	require.NoError(t, err)
	late := start.Add(caLifetime + time.Hour)
	renewed, changed, err := ca.renewed(late)
	require.NoError(t, err)
	assert.True(t, changed)
	assert.True(t, renewed.current.certificate.NotAfter.After(late))
	assert.NotContains(t, renewed.bundle(), ca.bundle(), "an expired CA verifies no certificate")

	half, _, err := ca.renewed(start.Add(caLifetime - caRenewal + leafLifetime))
	require.NoError(t, err)
	require.NotNil(t, half.next)
	renewed, changed, err = half.renewed(late)
	require.NoError(t, err)
	assert.True(t, changed)
	assert.Equal(t, half.next, renewed.current, "the next CA was created in time")
	assert.Nil(t, renewed.next)
}

// TestServingCAOfAFastClockIsReplaced has a CA that a process created whose clock was ahead.
func TestServingCAOfAFastClockIsReplaced(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	key, err := newKey()
	require.NoError(t, err)
	names := newServerNames("host", Options{Service: service, Namespace: "openshift-cluster-version"})
	fast, err := newAuthority(service, now.Add(2*time.Hour))
	require.NoError(t, err)
	ca, changed, err := fast.renewed(now)
	require.NoError(t, err)
	assert.True(t, changed)
	leaf, err := ca.sign(key, names, now)
	require.NoError(t, err)
	require.NoError(t, verifies(t, ca.bundle(), leaf, now))

	early, err := ca.sign(key, names, now.Add(2*time.Hour))
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(early)
	require.NoError(t, err)
	_, ok := ca.signed(certificate, now)
	assert.False(t, ok, "a serving certificate of a fast clock is replaced as well")

	used, err := fast.sign(key, names, now.Add(2*time.Hour))
	require.NoError(t, err)
	require.NoError(t, verifies(t, ca.bundle(), used, now.Add(2*time.Hour)), "if instead this clock is behind, a certificate of the CA is in use")
	_, changed, err = ca.renewed(now.Add(2 * time.Hour))
	require.NoError(t, err)
	assert.False(t, changed, "the process with the fast clock accepts the CA")
}

// TestReplicasWithSkewedClocksShareTheServingCA runs two replicas until the first CA has been renewed. Clients have the clock of the replica
// that is ahead, which also creates the first CA.
func TestReplicasWithSkewedClocksShareTheServingCA(t *testing.T) {
	const day = 24 * time.Hour
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	names := newServerNames("host", Options{Service: service, Namespace: "openshift-cluster-version"})
	key, err := newKey()
	require.NoError(t, err)
	for _, tt := range []struct {
		apart string
		skew  time.Duration
		// writes counts the creation, the next CA, its first use and the removal of the previous one.
		writes int
	}{
		{"minutes", 5 * time.Minute, 4},
		{"hours", 3 * time.Hour, 4 + 2}, // the first CA is replaced, and removed later
		{"days", 30 * time.Hour, 4 + 3}, // the next one is replaced as well, and removed together with its predecessor
	} {
		t.Run("it accepts clocks that are apart by "+tt.apart, func(t *testing.T) {
			ca, err := newAuthority(service, start.Add(tt.skew))
			require.NoError(t, err)
			leaf := func(now time.Time) *x509.Certificate {
				der, err := ca.sign(key, names, now)
				require.NoError(t, err)
				certificate, err := x509.ParseCertificate(der)
				require.NoError(t, err)
				return certificate
			}
			// The second certificate of each replica is the earlier one.
			behind, ahead := [2]*x509.Certificate{leaf(start)}, [2]*x509.Certificate{leaf(start.Add(tt.skew))}
			replicas := []struct {
				skew   time.Duration
				leaves *[2]*x509.Certificate
			}{{0, &behind}, {tt.skew, &ahead}}
			writes, stale := 1, []string{}
			for at := start; at.Before(start.Add(caLifetime - caRenewal + 100*day)); at = at.Add(day / 2) {
				for _, r := range append(replicas, replicas...) { // each sees the writes of the other one
					now := at.Add(r.skew)
					renewed, changed, err := ca.renewed(now)
					require.NoError(t, err)
					if ca = renewed; changed {
						writes++
					}
					if _, ok := ca.signed(r.leaves[0], now); !ok {
						*r.leaves = [2]*x509.Certificate{leaf(now), r.leaves[0]}
					}
				}
				client := at.Add(tt.skew)
				for _, leaf := range []*x509.Certificate{behind[0], behind[1], ahead[0], ahead[1]} {
					if leaf != nil && client.Before(leaf.NotAfter) {
						require.NoError(t, verifies(t, ca.bundle(), leaf.Raw, client))
					}
				}
				if stale = append(stale, ca.bundle()); len(stale) > 2 && tt.skew < caPublished {
					require.NoError(t, verifies(t, stale[len(stale)-2], behind[0].Raw, client), "a bundle from 12 hours ago contains the current signer")
				}
			}
			assert.Equal(t, tt.writes, writes)
		})
	}
}

// TestNextServingCAFromTheFutureIsReplaced has a next CA from a process whose clock was years ahead.
func TestNextServingCAFromTheFutureIsReplaced(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ca, err := newAuthority(service, start)
	require.NoError(t, err)
	future := start.Add(5 * 365 * 24 * time.Hour)
	ca.next, err = newSigner(service, future)
	require.NoError(t, err)
	_, changed, err := ca.renewed(start)
	require.NoError(t, err)
	assert.False(t, changed, "the process with the fast clock would create it again")

	due := ca.nextDue()
	renewed, changed, err := ca.renewed(due)
	require.NoError(t, err)
	require.True(t, changed)
	assert.Equal(t, ca.current, renewed.current)
	assert.True(t, isValid(renewed.next.certificate, due))
	_, changed, err = renewed.renewed(future.Add(-4 * 365 * 24 * time.Hour))
	require.NoError(t, err)
	assert.False(t, changed, "one write is enough")
	renewed, _, err = renewed.renewed(due.Add(caPublished))
	require.NoError(t, err)
	assert.True(t, isValid(renewed.current.certificate, due.Add(caPublished)))
	assert.Equal(t, []*x509.Certificate{ca.current.certificate}, renewed.previous)
}

func TestServingCertificateExpiresNoLaterThanTheCA(t *testing.T) {
	start := time.Now()
	ca, err := newAuthority(service, start)
	require.NoError(t, err)
	key, err := newKey()
	require.NoError(t, err)
	leaf, err := ca.sign(key, newServerNames("host", Options{Service: service, Namespace: "x", PodIP: ""}), start.Add(caLifetime-time.Hour))
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(leaf)
	require.NoError(t, err)
	assert.Equal(t, ca.current.certificate.NotAfter, certificate.NotAfter)
}

func TestInvalidServingCAIsRejected(t *testing.T) {
	ca, err := newAuthority(service, time.Now())
	require.NoError(t, err)
	other, err := newAuthority(service, time.Now())
	require.NoError(t, err)
	good, err := ca.data()
	require.NoError(t, err)
	foreign, err := other.data()
	require.NoError(t, err)
	leaf, leafKey := issuedPair(t)
	for name, change := range map[string]map[string][]byte{
		"nothing":                         {corev1.TLSCertKey: nil, corev1.TLSPrivateKeyKey: nil},
		"no key":                          {corev1.TLSPrivateKeyKey: nil},
		"the key of another CA":           {corev1.TLSPrivateKeyKey: foreign[corev1.TLSPrivateKeyKey]},
		"an invalid key":                  {corev1.TLSPrivateKeyKey: pemOf("PRIVATE KEY", []byte("x"))},
		"an invalid certificate":          {corev1.TLSCertKey: pemOf("CERTIFICATE", []byte("x"))},
		"two certificates":                {corev1.TLSCertKey: append(good[corev1.TLSCertKey], foreign[corev1.TLSCertKey]...)},
		"a certificate that may not sign": {corev1.TLSCertKey: leaf, corev1.TLSPrivateKeyKey: leafKey},
		"a next CA without its key":       {caNextCertKey: foreign[corev1.TLSCertKey]},
		"invalid previous certificates":   {caPreviousCertKey: pemOf("CERTIFICATE", []byte("x"))},
		"too much data":                   {"more": []byte(strings.Repeat("x", maxCAData))},
	} {
		t.Run("it refuses "+name, func(t *testing.T) {
			data := map[string][]byte{}
			for _, from := range []map[string][]byte{good, change} {
				maps.Copy(data, from)
			}
			_, err := parseAuthority(service, data)
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "PRIVATE")
		})
	}
	_, err = parseAuthority(service, good)
	require.NoError(t, err)
}

// FuzzServingCA parses arbitrary data of a Secret. Parsed data can be encoded again.
//
//threat:secret-operator-own
func FuzzServingCA(f *testing.F) {
	ca, err := newAuthority(service, time.Now())
	require.NoError(f, err)
	good, err := ca.data()
	require.NoError(f, err)
	f.Add(good[corev1.TLSCertKey], good[corev1.TLSPrivateKeyKey], []byte(nil))
	f.Add(good[corev1.TLSCertKey], []byte("-----BEGIN PRIVATE KEY-----"), []byte("x"))
	f.Fuzz(func(t *testing.T, certificate, key, previous []byte) {
		ca, err := parseAuthority(service, map[string][]byte{
			corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key, caPreviousCertKey: previous,
		})
		if err != nil {
			return
		}
		data, err := ca.data()
		require.NoError(t, err)
		again, err := parseAuthority(service, data)
		require.NoError(t, err)
		assert.Equal(t, ca.bundle(), again.bundle())
		_, _, err = ca.renewed(time.Now())
		require.NoError(t, err)
	})
}
