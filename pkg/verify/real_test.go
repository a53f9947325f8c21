package verify_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/test/fixture"
)

// realDigest is the digest of an image that a vendor signed in 2019, with a compressed message and a version 3 signature packet.
const realDigest release.Digest = "sha256:e3f12513a4b22a2d7c0e7c9207f52128113758d9d68c7d06b11a0ac7672966f7"

func TestRealSignatureVerifies(t *testing.T) {
	dir := filepath.Join(fixture.Testdata(t), "trust")
	trust, err := policy.Parse("redhat.txt", readFile(t, filepath.Join(dir, "keyrings", "redhat.txt")))
	require.NoError(t, err)
	trust.Stores = []string{"file://" + filepath.Join(dir, "signatures")}
	verifier, err := verify.New(trust, verify.Sources{}, nil)
	require.NoError(t, err)

	evidence, err := verifier.Verify(t.Context(), release.Image{Pullspec: "registry.example/release:4.1", Digest: realDigest})
	require.NoError(t, err)
	require.Len(t, evidence, 1)
	assert.Equal(t, "redhat", evidence[0].Root)
	assert.Equal(t, verify.MethodOpenPGP, evidence[0].Method)
	assert.Equal(t, "199E2F91FD431D51", evidence[0].KeyID)
	assert.Equal(t, "567E347AD0044ADE55BA8A5F199E2F91FD431D51", evidence[0].Fingerprint)
	assert.Equal(t, "RSA-4096/SHA-256", evidence[0].Algorithm)
	assert.Equal(t, "Red Hat, Inc. (release key 2) <security@redhat.com>", evidence[0].Identity)
	assert.Contains(t, evidence[0].Store, "/signature-1")
	assert.Equal(t, 2019, evidence[0].SignedAt.In(time.UTC).Year())
}
