package reading

import (
	"bytes"
	"encoding/json"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
)

// FuzzFindVersion resolves versions with a ClusterVersion. The ClusterVersion lists every version that is found, with its image. The error
// for any other version contains no control characters.
//
//threat:versions-ranges-versions
func FuzzFindVersion(f *testing.F) {
	f.Add([]byte(`{"status":{"desired":{"version":"1.0.0","image":"a"},"availableUpdates":[{"version":"1.1.0","image":"b"}],"conditionalUpdates":[{"release":{"version":"1.2.0","image":"c"}}],"history":[{"version":"0.9.0","image":"d"}]}}`), "1.2.0")
	f.Add([]byte(`{"status":{"history":[{"version":"1.0.0"},{"version":"\u001b","image":"x"}]}}`), "1.0.0")
	f.Fuzz(func(t *testing.T, data []byte, version string) {
		cv := &configv1.ClusterVersion{}
		if json.Unmarshal(data, cv) != nil {
			return
		}
		image, err := findVersion(cv, version)
		if err != nil {
			assert.Empty(t, image)
			assert.False(t, bytes.ContainsAny([]byte(err.Error()), "\x1b\n"), "%q", err)
			return
		}
		assert.Contains(t, knownReleases(cv), knownRelease{version, image})
		assert.NotEmpty(t, image)
	})
}
