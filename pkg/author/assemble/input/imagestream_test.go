package input

import (
	"fmt"
	"strings"
	"testing"

	imagev1 "github.com/openshift/api/image/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	digestA = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	digestB = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

const publicRegistry = "registry.ci.example/ci/platform"

// testStream returns an image stream with the given YAML spec and status.
func testStream(t *testing.T, text string) *imagev1.ImageStream {
	t.Helper()
	stream, err := ParseImageStream([]byte("kind: ImageStream\nmetadata: {name: platform}\n" + text))
	require.NoError(t, err)
	return stream
}

func TestStreamImagesAreResolved(t *testing.T) {
	status := "status:\n  dockerImageRepository: image-registry.openshift-image-registry.svc:5000/ci/platform\n"
	public := status + "  publicDockerImageRepository: " + publicRegistry + "\n"
	imported := fmt.Sprintf("  tags:\n  - tag: dns\n    items:\n    - {dockerImageReference: 'quay.example/dns@%s', image: '%s'}\n    - {dockerImageReference: old, image: '%s'}\n", digestA, digestA, digestB)
	inside := fmt.Sprintf("  tags:\n  - tag: dns\n    items:\n    - {dockerImageReference: 'image-registry.openshift-image-registry.svc:5000/ci/platform@%s', image: '%s'}\n", digestA, digestA)
	spec := fmt.Sprintf("spec:\n  tags:\n  - name: dns\n    annotations: {a: b}\n    importPolicy: {scheduled: true}\n    from: {kind: DockerImage, name: 'quay.example/spec@%s'}\n", digestB)
	byTag := "spec:\n  tags:\n  - name: dns\n    annotations: {a: b}\n    from: {kind: DockerImage, name: 'quay.example/dns:v1'}\n"
	for _, tt := range []struct {
		name, stream string
		mode         ReferenceMode
		exclude      []string
		want         string
		warning      string
		wantErr      string
	}{
		{name: "uses the public address of the newest image in the status", stream: public + imported, want: publicRegistry + "@" + digestA},
		{name: "uses the source in source mode", stream: public + imported, mode: ReferenceSource, want: "quay.example/dns@" + digestA},
		{name: "prefers a tag in the spec with a digest", stream: spec + public + imported, want: publicRegistry + "@" + digestB},
		{name: "keeps a tag in the spec without a public address", stream: spec, want: "quay.example/spec@" + digestB},
		{name: "ignores a tag in the spec without a digest", stream: byTag + public + imported, mode: ReferenceSource, want: "quay.example/dns@" + digestA},
		{name: "prefers a public address over an internal one", stream: public + inside, mode: ReferenceSource, want: publicRegistry + "@" + digestA},
		{name: "warns about an internal address", stream: status + inside, want: "image-registry.openshift-image-registry.svc:5000/ci/platform@" + digestA, warning: "other clusters cannot pull it"},
		{name: "omits excluded tags even if they were not imported", stream: byTag, exclude: []string{"dns"}},
		{name: "rejects a tag that was not imported", stream: byTag, wantErr: `the tag "dns" in the source input stream has not been imported yet`},
		{name: "rejects a tag in the status without images", stream: "status:\n  tags:\n  - tag: dns\n    items: []\n", wantErr: "has not been imported yet"},
		{name: "rejects an image without a digest", stream: "status:\n  tags:\n  - tag: dns\n    items: [{image: x}]\n", wantErr: "the newest image"},
		{name: "rejects an image without an address", stream: "status:\n  tags:\n  - tag: dns\n    items: [{image: '" + digestA + "'}]\n", wantErr: "the image has no address"},
		{name: "rejects a source with another digest", stream: "status:\n  tags:\n  - tag: dns\n    items: [{dockerImageReference: 'r/dns:v1', image: '" + digestA + "'}]\n", wantErr: `"r/dns:v1" is not the image ` + digestA},
		{name: "rejects public mode for a stream without a public address", stream: spec, mode: ReferencePublic, wantErr: "has no status.publicDockerImageRepository"},
		{name: "rejects an unknown mode", stream: spec, mode: "private", wantErr: `unknown reference mode "private"`},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			got, warnings, err := StreamImages(testStream(t, tt.stream), tt.mode, tt.exclude)
			if tt.wantErr != "" {
				require.ErrorContains(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Contains(t, strings.Join(warnings, "\n"), tt.warning)
			assert.Equal(t, tt.warning == "", len(warnings) == 0)
			if tt.want == "" {
				assert.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			assert.Equal(t, tt.want, got[0].From.Name)
			assert.Equal(t, "dns", got[0].Name)
			assert.Equal(t, imagev1.TagImportPolicy{}, got[0].ImportPolicy, "a release omits the stream's import policy")
			if strings.Contains(tt.stream, "annotations") {
				assert.Equal(t, map[string]string{"a": "b"}, got[0].Annotations)
			}
		})
	}
	t.Run("it reports all tags that were not imported", func(t *testing.T) {
		_, _, err := StreamImages(testStream(t, "spec:\n  tags: [{name: a}, {name: b}]\n"), "", nil)
		require.ErrorContains(t, err, `"a"`)
		assert.ErrorContains(t, err, `"b"`)
	})
}

//threat:image-streams
func FuzzStreamImages(f *testing.F) {
	for _, seed := range []string{
		"kind: ImageStream",
		"kind: ImageStream\nspec: {tags: [{name: a, from: null}, {name: a, from: {kind: DockerImage, Name: 'r/a@" + digestA + "'}}]}",
		"kind: ImageStream\nstatus: {publicDockerImageRepository: p/x, tags: [{tag: a, items: [{image: '" + digestA + "', dockerImageReference: x}]}]}",
		"kind: ImageStream\nstatus: {dockerImageRepository: /, tags: [{tag: a, items: [{image: '" + digestA + "'}]}, {tag: b}]}",
		`{"kind":"ImageStream","spec":{"tags":[{"name":"a","from":{"kind":"DockerImage","name":"@"}}]}}`,
	} {
		f.Add([]byte(seed), "")
		f.Add([]byte(seed), "source")
	}
	f.Fuzz(func(t *testing.T, data []byte, mode string) {
		stream, err := ParseImageStream(data)
		if err != nil {
			return
		}
		images, _, err := StreamImages(stream, ReferenceMode(mode), nil)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, tag := range images {
			_, _, ok := ByDigest(tag)
			require.True(t, ok, "%+v", tag)
			require.False(t, seen[tag.Name], "each image is returned once")
			seen[tag.Name] = true
		}
	})
}
