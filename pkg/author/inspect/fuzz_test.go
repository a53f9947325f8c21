package inspect_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/author/inspect"
)

// folder opens a release with the given files.
func folder(files map[string]string) *inspect.Release {
	root := fstest.MapFS{}
	for name, text := range files {
		root["release-manifests/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return inspect.OpenFS("fuzz", root)
}

// FuzzDescribe reads arbitrary metadata files. The resulting text must be deterministic and free of control characters.
//
//threat:control-characters-rewrite
//threat:release-metadata
//threat:image-references-releases
func FuzzDescribe(f *testing.F) {
	metadata := manifests()["release-manifests/release-metadata"]
	f.Add(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.2.3"},"spec":{"tags":[{"name":"a","from":{"kind":"DockerImage","name":"r/a@sha256:0"}}]}}`, metadata)
	f.Add(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"\u001b[2J","annotations":{"io.openshift.build.versions":"a=1,=,b"}},"spec":{"tags":[{"name":"a"},{"name":"a"}]}}`,
		`{"kind":"cincinnati-metadata-v0","version":"1.2.3","previous":["x","1.0.0",""],"metadata":{"a":null,"b":[1,{}]}}`)
	f.Add("[", "{")
	f.Fuzz(func(t *testing.T, references, metadata string) {
		r := folder(map[string]string{"image-references": references, "release-metadata": metadata})
		info, err := inspect.Describe(t.Context(), r)
		if err != nil {
			return
		}
		for _, view := range []inspect.View{inspect.ViewDigests, inspect.ViewCommitURLs, inspect.ViewSizes} {
			var out, again bytes.Buffer
			require.NoError(t, info.WriteText(&out, view, epoch))
			require.NoError(t, info.WriteText(&again, view, epoch))
			assert.Equal(t, out.String(), again.String())
			assert.False(t, strings.ContainsFunc(out.String(), func(r rune) bool { return r != '\n' && unicode.IsControl(r) }), "%q", out.String())
		}
		_ = info.WriteList(io.Discard, "digest")
		_, _ = info.ImageFor("a")
	})
}
