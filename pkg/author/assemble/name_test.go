package assemble

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestManifestNamesGetRunlevelAndComponent(t *testing.T) {
	type call struct{ component, file, want string }
	for _, tt := range []struct {
		name  string
		calls []call
	}{
		{"keeps a name with a runlevel", []call{{"dns", "0000_70_dns_00.yaml", "0000_70_dns_00.yaml"}}},
		{"uses runlevel 50 by default", []call{{"dns", "crd.yaml", "0000_50_dns_crd.yaml"}, {"dns", "00_crd.yaml", "0000_50_dns_00_crd.yaml"}}},
		{"numbers duplicate names before the extension", []call{
			{"a", "0000_10_x_y.crd.yaml", "0000_10_x_y.crd.yaml"},
			{"b", "0000_10_x_y.crd.yaml", "0000_10_x_y.crd_2.yaml"},
			{"c", "0000_10_x_y.crd.yaml", "0000_10_x_y.crd_3.yaml"},
		}},
		{"skips numbers that are already used", []call{
			{"a", "0000_10_x_2.yaml", "0000_10_x_2.yaml"},
			{"b", "0000_10_x.yaml", "0000_10_x.yaml"},
			{"c", "0000_10_x.yaml", "0000_10_x_3.yaml"},
		}},
		{"numbers names without an extension", []call{{"a", "0000_10_x", "0000_10_x"}, {"b", "0000_10_x", "0000_10_x_2"}}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			var n names
			for _, c := range tt.calls {
				assert.Equal(t, c.want, n.unique(c.component, c.file))
			}
		})
	}
}
