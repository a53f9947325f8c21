package updates

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/clusterversion/control"
)

// TestConfiguredServiceReportsUpdates configures a different update service than the spec. The status lists its updates.
func TestConfiguredServiceReportsUpdates(t *testing.T) {
	f, cv := newFakeService(), asking()
	f.options.Service = "https://updates.example.com/flag"
	assert.NotEqual(t, f.options.Service, string(cv.Spec.Upstream))
	status := f.look(t, cv, control.Schema{})
	available, conditional := versions(status)
	assert.Equal(t, []string{"1.1.0", "1.0.3", "1.0.1"}, available)
	assert.Len(t, conditional, 1)
	assert.Equal(t, "True||", said(status, configv1.RetrievedUpdates))
}
