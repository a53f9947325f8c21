package assemble

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	imagev1 "github.com/openshift/api/image/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const publicRegistry = "registry.ci.example/ci/platform"

// testStream is an image stream whose spec and status are YAML.
func testStream(t *testing.T, text string) *imagev1.ImageStream {
	t.Helper()
	stream, err := ParseImageStream([]byte("kind: ImageStream\nmetadata: {name: platform}\n" + text))
	require.NoError(t, err)
	return stream
}

func TestStreamImages(t *testing.T) {
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
		{name: "takes the newest image of the status, publicly", stream: public + imported, want: publicRegistry + "@" + digestA},
		{name: "takes its source if asked to", stream: public + imported, mode: ReferenceSource, want: "quay.example/dns@" + digestA},
		{name: "prefers a tag of the spec that names a digest", stream: spec + public + imported, want: publicRegistry + "@" + digestB},
		{name: "takes a tag of the spec as it stands, without a public address", stream: spec, want: "quay.example/spec@" + digestB},
		{name: "passes over a tag of the spec that names a tag", stream: byTag + public + imported, mode: ReferenceSource, want: "quay.example/dns@" + digestA},
		{name: "takes no internal address where there is a public one", stream: public + inside, mode: ReferenceSource, want: publicRegistry + "@" + digestA},
		{name: "warns of an address that one cluster has", stream: status + inside, want: "image-registry.openshift-image-registry.svc:5000/ci/platform@" + digestA, warning: "which others cannot pull from"},
		{name: "leaves out what is excluded, imported or not", stream: byTag, exclude: []string{"dns"}},
		{name: "refuses a tag that was not imported", stream: byTag, wantErr: `the tag "dns" in the source input stream has not been imported yet`},
		{name: "refuses a tag of the status without images", stream: "status:\n  tags:\n  - tag: dns\n    items: []\n", wantErr: "has not been imported yet"},
		{name: "refuses an image without a digest", stream: "status:\n  tags:\n  - tag: dns\n    items: [{image: x}]\n", wantErr: "its newest image"},
		{name: "refuses an image that lies nowhere", stream: "status:\n  tags:\n  - tag: dns\n    items: [{image: '" + digestA + "'}]\n", wantErr: "nothing says where its image lies"},
		{name: "refuses a source that is another image", stream: "status:\n  tags:\n  - tag: dns\n    items: [{dockerImageReference: 'r/dns:v1', image: '" + digestA + "'}]\n", wantErr: `"r/dns:v1" is not the image ` + digestA},
		{name: "refuses public addresses of a stream that has none", stream: spec, mode: ReferencePublic, wantErr: "has no status.publicDockerImageRepository"},
		{name: "refuses an unknown mode", stream: spec, mode: "private", wantErr: `reference mode "private" is not known`},
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
			assert.Equal(t, imagev1.TagImportPolicy{}, got[0].ImportPolicy, "how a stream is kept up to date is no part of a release")
			if strings.Contains(tt.stream, "annotations") {
				assert.Equal(t, map[string]string{"a": "b"}, got[0].Annotations)
			}
		})
	}
	t.Run("it tells of all tags that were not imported", func(t *testing.T) {
		_, _, err := StreamImages(testStream(t, "spec:\n  tags: [{name: a}, {name: b}]\n"), "", nil)
		require.ErrorContains(t, err, `"a"`)
		assert.ErrorContains(t, err, `"b"`)
	})
}

func TestParseMapping(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     map[string]string
		wantErr  []string
	}{
		{name: "reads lines, blanks and comments", in: "# a\n\n dns=r/dns@x \r\n#ntp=y\nntp = r/ntp:v1", want: map[string]string{"dns": "r/dns@x", "ntp": "r/ntp:v1"}},
		{name: "reads two components of one image", in: "a=r/x\nb=r/x", want: map[string]string{"a": "r/x", "b": "r/x"}},
		{name: "reads nothing", in: "", want: map[string]string{}},
		{name: "refuses a component twice, with both lines", in: "a=r/x\n\na=r/x", wantErr: []string{`line 3: component "a" is given twice, first in line 1`}},
		{name: "tells all that is wrong", in: "dns\n=x\nA=b\na=b c", wantErr: []string{`line 1: "dns" is not COMPONENT=PULLSPEC`, `line 2: "=x" is not`, `line 3: component "A"`, `line 4: "a=b c" is not`}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			got, err := ParseMapping([]byte(tt.in))
			for _, want := range tt.wantErr {
				require.ErrorContains(t, err, want)
			}
			if tt.wantErr == nil {
				require.NoError(t, err)
				assert.Equal(t, tt.want, got)
			}
		})
	}
}

func TestParseDisplayNames(t *testing.T) {
	got, err := ParseDisplayNames("machine-os=Red Hat Enterprise Linux CoreOS (9.8), kernel=Linux: 6.1-rc")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"machine-os": "Red Hat Enterprise Linux CoreOS (9.8)", "kernel": "Linux: 6.1-rc"}, got)
	for _, bad := range []string{"kernel", "kernel=", "k=x", "kernel=a;b", "kernel=a,kernel=b"} {
		_, err := ParseDisplayNames(bad)
		assert.Error(t, err, bad)
	}
}

func TestPrune(t *testing.T) {
	images := []imagev1.TagReference{ImageTag("z-base", "x"), ImageTag("dns", "x"), ImageTag("referred", "x"), ImageTag("included", "x"), ImageTag("unused", "x"), ImageTag("empty", "x")}
	components := []Component{
		{Name: "dns", Files: []File{file("a.yaml", "")}, References: []imagev1.TagReference{ImageTag("referred", "p"), ImageTag("not-there", "p")}},
		{Name: "empty"},
	}
	kept, left := prune(images, components, []string{"included", "z-base", "not-there-either"})
	var names []string
	for _, tag := range kept {
		names = append(names, tag.Name)
	}
	assert.Equal(t, []string{"dns", "included", "referred", "z-base"}, names)
	assert.Equal(t, []string{"empty", "unused"}, left)
}

func TestPruneKeepsWhatTemplatesName(t *testing.T) {
	templates := []File{file("0000_50_console_00.yaml", object("ConfigMap", "console", "  namespace: x\ndata:\n  image: '{{index .Images \"console-plugin\"}}'\n"))}
	names := func(opts Options) (names []string) {
		opts.Images = append(opts.Images, ImageTag("console-plugin", "r/p@"+digestA), ImageTag("unused", "r/u@"+digestB))
		kept, left, err := opts.pruned()
		require.NoError(t, err)
		assert.Equal(t, []string{"unused"}, left)
		for _, tag := range kept {
			names = append(names, tag.Name)
		}
		return names
	}
	want := []string{"console-plugin", "dns", "ntp"}
	opts := small()
	opts.Operator = templates
	assert.Equal(t, want, names(opts), "of the operator's own set")
	layer, err := folderLayer(operatorFolder, 0o755, templates, epoch)
	require.NoError(t, err)
	opts.Operator = nil
	opts.Base, err = mutate.AppendLayers(empty.Image, layer)
	require.NoError(t, err)
	assert.Equal(t, want, names(opts), "of the base image")
	opts.Platforms, opts.Base = []Platform{{Base: opts.Base}}, nil
	assert.Equal(t, want, names(opts), "of the base images")
}

func FuzzParseMapping(f *testing.F) {
	for _, seed := range []string{"", "a=b", "# x\na=b\r\nc = d", "a=b\na=c", "=\n\n==", "a=b=c"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		mapping, err := ParseMapping(text)
		if err != nil {
			return
		}
		var again strings.Builder
		for component, pullspec := range mapping {
			require.NoError(t, checkComponentName(component))
			again.WriteString(component + "=" + pullspec + "\n")
		}
		got, err := ParseMapping([]byte(again.String()))
		require.NoError(t, err)
		assert.Equal(t, mapping, got)
	})
}

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
			_, _, ok := byDigest(tag)
			require.True(t, ok, "%+v", tag)
			require.False(t, seen[tag.Name], "an image comes once")
			seen[tag.Name] = true
		}
	})
}

func FuzzParseDisplayNames(f *testing.F) {
	for _, seed := range []string{"", "kernel=Linux", "aa=b, cc=d e", "=,=", "machine-os=Red Hat (x.y): z"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		names, err := ParseDisplayNames(text)
		if err != nil {
			return
		}
		again, err := ParseDisplayNames(formatPairs(names))
		require.NoError(t, err)
		assert.Equal(t, names, again)
	})
}
