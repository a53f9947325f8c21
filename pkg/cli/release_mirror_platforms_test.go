package cli_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/release/mirror"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// newMirrorableIndex returns a release with an image for each of two architectures, which is not signed yet. amd64 is one of the images.
func newMirrorableIndex(t *testing.T) (m *mirrorable, amd64 release.Image) {
	t.Helper()
	m = newMirrorable(t, false)
	ref, err := name.NewTag(m.source.Host()+"/upstream/release:1.2.3-multi", name.Insecure)
	require.NoError(t, err)
	var index v1.ImageIndex = empty.Index
	for _, architecture := range []string{"amd64", "arm64"} {
		img, err := fixture.ReleaseImage(m.tree)
		require.NoError(t, err)
		config, err := img.ConfigFile()
		require.NoError(t, err)
		config = config.DeepCopy()
		config.Architecture = architecture
		img, err = mutate.ConfigFile(img, config)
		require.NoError(t, err)
		if architecture == "amd64" {
			digest, err := img.Digest()
			require.NoError(t, err)
			amd64 = release.Image{Pullspec: ref.String(), Digest: release.Digest(digest.String())}
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: architecture},
		}})
	}
	require.NoError(t, remote.WriteIndex(ref, index))
	digest, err := index.Digest()
	require.NoError(t, err)
	m.image = release.Image{Pullspec: ref.String(), Digest: release.Digest(digest.String())}
	return m, amd64
}

// mirrored returns the digest of the release image in the target registry, and whether it has all architectures.
func (m *mirrorable) mirrored(tag string) (digest release.Digest, isIndex bool) {
	m.t.Helper()
	ref, err := name.NewTag(m.to()+":"+tag, name.Insecure)
	require.NoError(m.t, err)
	desc, err := remote.Head(ref)
	require.NoError(m.t, err, tag)
	return release.Digest(desc.Digest.String()), desc.MediaType.IsIndex()
}

// verify verifies an image in the target registry.
func (m *mirrorable) verify(digest release.Digest, args ...string) error {
	m.t.Helper()
	_, _, err := runCvo(m.t, append([]string{"release", "verify", m.to() + "@" + string(digest)}, args...)...)
	return err
}

func TestReleaseMirrorKeepsAnIndexWhoseImagesAreNotSigned(t *testing.T) {
	keepsIndex := func(t *testing.T, m *mirrorable) release.Digest {
		t.Helper()
		assert.Contains(t, m.stderrText, "info: Copying all architectures, because the signature covers only the multi-architecture image")
		assert.NotContains(t, m.stderrText, "warning: ")
		assert.Contains(t, m.stdout, "Update image:  TARGET/mirror/platform:1.2.3-multi\n")
		digest, isIndex := m.mirrored("1.2.3-multi")
		assert.True(t, isIndex)
		assert.Equal(t, m.image.Digest, digest)
		return digest
	}
	t.Run("with an OpenPGP signature", func(t *testing.T) {
		m, _ := newMirrorableIndex(t)
		m.sign()
		require.NoError(t, m.run(m.image.Pullspec, "--to", m.to(), "--trust", m.trust))
		require.NoError(t, m.verify(keepsIndex(t, m), "--trust", m.trust))
	})
	t.Run("with a sigstore signature", func(t *testing.T) {
		m, _ := newMirrorableIndex(t)
		signer, err := fixture.NewKeySigner()
		require.NoError(t, err)
		require.NoError(t, signer.Attach(t.Context(), m.image))
		trust := trustKey(t, signer)
		require.NoError(t, m.run(m.image.Pullspec, "--to", m.to(), "--trust", trust))
		digest := keepsIndex(t, m)
		require.NoError(t, m.source.Close())
		require.NoError(t, m.verify(digest, "--trust", trust), "the mirror has the signature")
	})
	t.Run("through a folder", func(t *testing.T) {
		m, _ := newMirrorableIndex(t)
		m.sign()
		folder := filepath.Join(m.dir, "carried")
		require.NoError(t, m.run(m.image.Pullspec, "--to-dir", folder, "--trust", m.trust))
		_, second, _ := strings.Cut(m.stdout, "To copy it to a registry:\n\n  cvo release mirror ")
		second = strings.NewReplacer("DIR", m.dir, "REGISTRY/REPOSITORY", m.to()).Replace(strings.TrimSpace(second))
		assert.Contains(t, second, " --keep-manifest-list")

		require.NoError(t, m.source.Close())
		require.NoError(t, os.RemoveAll(m.store))
		require.NoError(t, m.run(strings.Fields(second)...))
		digest, isIndex := m.mirrored("1.2.3-multi")
		assert.True(t, isIndex)
		require.NoError(t, m.verify(digest, "--trust", m.trust, "--signatures", filepath.Join(folder, "config")))
	})
}

func TestReleaseMirrorCopiesOneArchitectureOfAnIndex(t *testing.T) {
	t.Run("if its image is signed too", func(t *testing.T) {
		m, amd64 := newMirrorableIndex(t)
		m.sign()
		_, err := m.signer.WriteSignature(m.store, amd64)
		require.NoError(t, err)
		require.NoError(t, m.run(m.image.Pullspec, "--to", m.to(), "--trust", m.trust))
		assert.NotContains(t, m.stderrText, "warning: ")
		digest, isIndex := m.mirrored("1.2.3-x86_64")
		assert.False(t, isIndex)
		require.NoError(t, m.verify(digest, "--trust", m.trust))
	})
	t.Run("with a warning on request", func(t *testing.T) {
		m, amd64 := newMirrorableIndex(t)
		m.sign()
		require.NoError(t, m.run(m.image.Pullspec, "--to", m.to(), "--trust", m.trust, "--keep-manifest-list=false", "-o", "json"))
		assert.Contains(t, m.stderrText, "warning: the signature covers the multi-architecture image RELEASE, but not the image "+string(amd64.Digest)+" in it: "+
			"clusters that verify signatures will reject the mirrored image: omit --keep-manifest-list=false\n")
		var result mirror.Result
		require.NoError(t, json.Unmarshal([]byte(m.stdout), &result))
		assert.Equal(t, amd64.Digest, result.Digest)
		digest, _ := m.mirrored("1.2.3-x86_64")
		assert.Equal(t, command.ExitRefused, command.ExitCode(m.verify(digest, "--trust", m.trust)))
	})
	t.Run("unless the search for the signature of its image fails", func(t *testing.T) {
		for name, damage := range map[string]func(t *testing.T, signature string){
			"because the signature is damaged": func(t *testing.T, signature string) {
				t.Helper()
				require.NoError(t, os.WriteFile(signature, []byte("damaged"), 0o600))
			},
			"because the store cannot be read": func(t *testing.T, signature string) {
				t.Helper()
				require.NoError(t, os.Remove(signature))
				require.NoError(t, os.Mkdir(signature, 0o755))
			},
		} {
			t.Run(name, func(t *testing.T) {
				m, amd64 := newMirrorableIndex(t)
				m.sign()
				signature, err := m.signer.WriteSignature(m.store, amd64)
				require.NoError(t, err)
				damage(t, signature)
				err = m.run(m.image.Pullspec, "--to", m.to(), "--trust", m.trust)
				require.ErrorContains(t, err, "nothing was copied: cannot determine whether image "+string(amd64.Digest)+" is signed")
				require.ErrorContains(t, err, "signature-1: ")
				require.ErrorContains(t, err, "--keep-manifest-list")
				assert.Equal(t, command.ExitRefused, command.ExitCode(err))
				assert.NotContains(t, m.stderrText, "Copying all architectures")

				require.NoError(t, m.run(m.image.Pullspec, "--to", m.to(), "--trust", m.trust, "--keep-manifest-list"))
			})
		}
	})
	t.Run("without verification", func(t *testing.T) {
		m, amd64 := newMirrorableIndex(t)
		require.NoError(t, m.run(m.image.Pullspec, "--to", m.to(), "--insecure-skip-verification"))
		digest, _ := m.mirrored("1.2.3-x86_64")
		assert.Equal(t, amd64.Digest, digest)
	})
}

func TestReleaseMirrorPrintsKeepManifestListForTheSecondCommand(t *testing.T) {
	m, _ := newMirrorableIndex(t)
	folder := filepath.Join(m.dir, "carried")
	require.NoError(t, m.run(m.image.Pullspec, "--to-dir", folder, "--insecure-skip-verification", "--keep-manifest-list"))
	assert.Contains(t, m.stdout, "cvo release mirror --from-dir DIR/carried --from 1.2.3-multi --to REGISTRY/REPOSITORY --keep-manifest-list\n")
}

// pushPlatforms makes component dns an image for two platforms with an attestation. It returns the index, the second platform and the
// attestation.
func (m *mirrorable) pushPlatforms() (index release.Digest, arm64, attestation v1.Hash) {
	m.t.Helper()
	var content v1.ImageIndex = empty.Index
	add := func(descriptor v1.Descriptor) v1.Hash {
		img, err := fixture.Append(empty.Image, []byte(descriptor.Platform.String()))
		require.NoError(m.t, err)
		content = mutate.AppendManifests(content, mutate.IndexAddendum{Add: img, Descriptor: descriptor})
		digest, err := img.Digest()
		require.NoError(m.t, err)
		return digest
	}
	amd64 := add(v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}})
	arm64 = add(v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}})
	attestation = add(v1.Descriptor{
		Platform:    &v1.Platform{OS: "unknown", Architecture: "unknown"},
		Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": amd64.String()},
	})
	ref, err := name.NewTag(m.source.Host()+"/upstream/components:two", name.Insecure)
	require.NoError(m.t, err)
	require.NoError(m.t, remote.WriteIndex(ref, content))
	digest, err := content.Digest()
	require.NoError(m.t, err)

	references := m.tree["release-manifests/image-references"]
	references.Data = bytes.ReplaceAll(references.Data, []byte(m.components[1].Digest), []byte(digest.String()))
	m.image, err = fixture.PushRelease(m.t.Context(), m.source, m.tree, "upstream/release:1.2.3-x86_64")
	require.NoError(m.t, err)
	m.sign()
	return release.Digest(digest.String()), arm64, attestation
}

func TestReleaseMirrorNamesWhatAnIndexLacks(t *testing.T) {
	lack := func(m *mirrorable, digest v1.Hash) {
		m.source.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/" + digest.String()), Status: http.StatusNotFound})
	}
	t.Run("an attestation with one warning", func(t *testing.T) {
		m := newMirrorable(t, false)
		index, _, attestation := m.pushPlatforms()
		lack(m, attestation)
		folder := filepath.Join(m.dir, "carried") // this registry accepts an index only with all its manifests
		require.NoError(t, m.run(m.image.Pullspec, "--to-dir", folder, "--trust", m.trust))
		assert.Contains(t, m.stderrText, "warning: dns: not copying attestation "+attestation.String()+" of index "+string(index)+": its source does not have it\n")
		assert.Equal(t, 1, strings.Count(m.stderrText, "warning: "), m.stderrText)
		assert.FileExists(t, filepath.Join(folder, "blobs", "sha256", index.Hex()))
	})
	t.Run("a platform with an error", func(t *testing.T) {
		m := newMirrorable(t, false)
		index, arm64, _ := m.pushPlatforms()
		lack(m, arm64)
		err := m.run(m.image.Pullspec, "--to", m.to(), "--trust", m.trust)
		require.ErrorContains(t, err, "index "+string(index)+" lists platform linux/arm64, which its source does not have")
		assert.NotContains(t, m.stderrText, "warning: ")
		assert.Empty(t, m.stdout)
	})
}
