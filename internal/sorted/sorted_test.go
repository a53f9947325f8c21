package sorted_test

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/internal/sorted"
)

func TestEqualElementsKeepTheirOrder(t *testing.T) {
	type pair struct {
		key  int
		name string
	}
	list := []pair{{2, "a"}, {1, "b"}, {2, "c"}, {1, "d"}, {0, "e"}}
	sorted.By(list, func(a, b pair) int { return cmp.Compare(a.key, b.key) })
	assert.Equal(t, []pair{{0, "e"}, {1, "b"}, {1, "d"}, {2, "a"}, {2, "c"}}, list)
}
