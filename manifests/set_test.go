package manifests

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDescriptionsOfAnotherCommitAreIgnored reads files of a folder that git does not update.
func TestDescriptionsOfAnotherCommitAreIgnored(t *testing.T) {
	plain := []byte("kind: CustomResourceDefinition\n")
	for _, tt := range []struct {
		name, described string
		replaces        bool
	}{
		{"of this commit", DescriptionOf(plain) + "kind: CustomResourceDefinition\ndescription: a kind\n", true},
		{"of another commit", DescriptionOf([]byte("kind: Other\n")) + "kind: Other\n", false},
		{"without a first line", "kind: Other\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := set{plain: fstest.MapFS{"a.yaml": {Data: plain}}, described: fstest.MapFS{"a.yaml": {Data: []byte(tt.described)}}}
			data, err := fs.ReadFile(s, "a.yaml")
			require.NoError(t, err)
			assert.Equal(t, tt.replaces, string(data) == tt.described, "%s", data)
			assert.Equal(t, !tt.replaces, string(data) == string(plain))
			names, err := fs.Glob(s, "*")
			require.NoError(t, err)
			assert.Equal(t, []string{"a.yaml"}, names)
		})
	}
}
