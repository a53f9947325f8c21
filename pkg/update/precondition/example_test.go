package precondition_test

import (
	"fmt"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/precondition"
)

func ExampleRun() {
	cv := &configv1.ClusterVersion{}
	cv.Status.Desired.Version = "4.21.0"
	cv.Status.AvailableUpdates = []configv1.Release{{Version: "4.23.0"}}
	objections := precondition.Run(precondition.All(), precondition.Input{ClusterVersion: cv, Target: release.Release{Version: "4.23.0"}})
	for _, o := range precondition.Blocking(objections) {
		fmt.Printf("%s: %s\n", o.Check, o.Reason)
	}
	// Output: ClusterVersionGiantHop: MultipleMinorVersionsUpdate
}
