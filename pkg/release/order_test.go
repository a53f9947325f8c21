package release_test

import (
	"slices"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/release"
)

func TestVersionsAreComparedByPrecedence(t *testing.T) {
	sorted := []string{"", "4.9", "latest", "4.9.1", "4.10.0-rc.1", "4.10.0-rc.2", "4.10.0", "4.10.0+a", "4.10.0+b", "10.0.0"}
	for i, a := range sorted {
		for j, b := range sorted {
			switch got := release.CompareVersions(a, b); {
			case i < j:
				assert.Negative(t, got, "%q before %q", a, b)
			case i > j:
				assert.Positive(t, got, "%q after %q", a, b)
			default:
				assert.Zero(t, got)
			}
		}
	}
	shuffled := slices.Clone(sorted)
	slices.Reverse(shuffled)
	slices.SortFunc(shuffled, release.CompareVersions)
	assert.Equal(t, sorted, shuffled)
}

func TestNewestReleaseIsSortedFirst(t *testing.T) {
	sorted := []configv1.Release{{Version: "2.0.0"}, {Version: "1.0.0", Image: "a"}, {Version: "1.0.0", Image: "b"}, {Version: "latest"}}
	shuffled := slices.Clone(sorted)
	slices.Reverse(shuffled)
	slices.SortFunc(shuffled, release.NewestFirst)
	assert.Equal(t, sorted, shuffled)
}
