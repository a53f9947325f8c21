package gate_test

import (
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

func ExampleCheck() {
	manifests, err := manifest.Parse("0000_30_dns_09.yaml", []byte(`{apiVersion: config.openshift.io/v1, kind: ClusterOperator,
  metadata: {name: dns}, status: {versions: [{name: operator, version: 1.2.0}]}}`), manifest.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	want := gate.Want{Manifest: manifests[0], Mode: release.Updating}
	dns := &configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: "dns"}}
	dns.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
		{Type: configv1.OperatorAvailable, Status: configv1.ConditionTrue},
		{Type: configv1.OperatorDegraded, Status: configv1.ConditionFalse},
	}
	for _, version := range []string{"1.1.0", "1.2.0"} {
		dns.Status.Versions = []configv1.OperandVersion{{Name: "operator", Version: version}}
		verdict := gate.Check(dns, want)
		fmt.Printf("%s %q\n", verdict.State, verdict.Message)
	}
	// Output:
	// Waiting "Cluster operator dns is updating versions"
	// Settled ""
}
