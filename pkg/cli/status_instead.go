package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
)

// clusterVersionLines is what can be told of a rollout without its operator.
func clusterVersionLines(ctx context.Context, cfg *rest.Config, name string, now time.Time) ([]string, error) {
	scheme := runtime.NewScheme()
	if err := configv1.Install(scheme); err != nil {
		return nil, fmt.Errorf("preparing scheme: %w", err)
	}
	reader, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	cv := &configv1.ClusterVersion{}
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, cv); err != nil {
		return nil, fmt.Errorf("reading ClusterVersion %s: %w", name, err)
	}
	return describeClusterVersion(cv, now), nil
}

// describeClusterVersion is the release, the newest history entry and the conditions. It is pure.
func describeClusterVersion(cv *configv1.ClusterVersion, now time.Time) []string {
	lines := []string{"Release  " + cmp.Or(oneLine(cv.Status.Desired.Version), "none yet") + "  " + oneLine(cv.Status.Desired.Image)}
	if len(cv.Status.History) > 0 {
		h := cv.Status.History[0]
		text := fmt.Sprintf("%s  %s, begun %s ago", h.State, oneLine(h.Version), duration.HumanDuration(max(0, now.Sub(h.StartedTime.Time))))
		if h.CompletionTime != nil {
			text += fmt.Sprintf(", completed %s ago", duration.HumanDuration(max(0, now.Sub(h.CompletionTime.Time))))
		}
		lines = append(lines, text)
	}
	for _, kind := range []configv1.ClusterStatusConditionType{configv1.OperatorProgressing, api.Failing, api.ReleaseAccepted, configv1.OperatorAvailable} {
		for _, c := range cv.Status.Conditions {
			if c.Type == kind {
				since := duration.HumanDuration(max(0, now.Sub(c.LastTransitionTime.Time)))
				lines = append(lines, fmt.Sprintf("%-16s %-8s %5s  %s", c.Type, c.Status, since, oneLine(c.Message)))
			}
		}
	}
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}
