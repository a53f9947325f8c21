package collect

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
)

//threat:dumps-cluster-updates
func FuzzParseObjects(f *testing.F) {
	for _, seed := range []string{
		"apiVersion: config.openshift.io/v1\nkind: ClusterOperator\nmetadata: {name: a}\n",
		"kind: List\nitems:\n- kind: ClusterOperator\n  metadata: {name: a}\n- null\n",
		"kind: ClusterOperatorList\n", "items: {}", "[]", "", "a: &a [*a]", "kind: X\nitems: [&b {metadata: {name: c}}, *b]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		operators, err := ParseObjects[configv1.ClusterOperator](data)
		if err != nil {
			assert.Empty(t, operators)
		}
		_, _ = ParseAlerts(data)
	})
}
