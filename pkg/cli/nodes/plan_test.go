package nodes

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/command"
)

func TestPlanWarnsIfTheLeaderIsUnknown(t *testing.T) {
	const warning = "warning: the leading controller is unknown, so its node may not be planned last: "
	lease := fmt.Sprintf(`{"spec":{"holderIdentity":"controller-0","leaseDurationSeconds":15,"renewTime":%q}}`, time.Now().Format("2006-01-02T15:04:05.000000Z07:00"))
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   string
		pod    string
	}{
		{name: "it finds the leader", status: http.StatusOK, body: lease, pod: "controller-0"},
		{name: "it may not read the Lease", status: http.StatusForbidden, want: "reading Lease openshift-machine-config-operator/machine-config-controller: "},
		{name: "no Lease exists", status: http.StatusNotFound, want: "no replica holds Lease openshift-machine-config-operator/machine-config-controller\n"},
		{name: "the Lease was released", status: http.StatusOK, body: `{"spec":{"holderIdentity":"","renewTime":"2026-01-01T00:00:00.000000Z"}}`, want: "no replica holds Lease openshift-machine-config-operator/machine-config-controller\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, "/apis/coordination.k8s.io/v1/namespaces/openshift-machine-config-operator/leases/machine-config-controller", r.URL.Path)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body))
			}))
			t.Cleanup(server.Close)
			kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
			require.NoError(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"current-context":"a","clusters":[{"name":"a","cluster":{"server":%q}}],`+
				`"contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],"users":[{"name":"a","user":{}}]}`, server.URL), 0o600))
			o := &planOptions{}
			set := pflag.NewFlagSet("", pflag.ContinueOnError)
			o.cluster.Add(set)
			require.NoError(t, set.Parse([]string{"--kubeconfig", kubeconfig}))
			var errs bytes.Buffer

			got := o.leader(t.Context(), command.Streams{Err: &errs})

			assert.Equal(t, tt.pod, got.Name)
			if tt.want == "" {
				assert.Empty(t, errs.String())
				return
			}
			assert.Contains(t, errs.String(), warning+tt.want)
		})
	}
}
