package nearest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/update/nearest"
)

func TestFirstOrdersByPrecedence(t *testing.T) {
	for _, tt := range []struct {
		name, current string
		updates, want []string
	}{
		{
			"alternates between patch releases and the newest of each minor version", "4.1.1",
			[]string{"4.3.9", "4.3.8", "4.2.5", "4.1.4", "4.1.3", "4.1.2", "4.1.0"},
			[]string{"4.1.2", "4.1.4", "4.1.3", "4.2.5", "4.3.9", "4.3.8", "4.1.0"},
		},
		{"has no patch releases for an invalid current version", "", []string{"4.2.2", "4.1.3", "4.1.2"}, []string{"4.1.3", "4.2.2", "4.1.2"}},
		{"puts updates without a valid version last", "4.1.0", []string{"odd", "4.1.2"}, []string{"4.1.2", "odd"}},
		{"distinguishes major versions", "4.1.0", []string{"5.1.1", "4.1.1"}, []string{"4.1.1", "5.1.1"}},
		{"returns nothing for no updates", "4.1.0", nil, []string{}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, nearest.First(tt.updates, tt.current, func(v string) string { return v }))
		})
	}
}
