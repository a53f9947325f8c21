package update

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/policy"
)

// forbidding is the connection to an API server that forbids everything.
type forbidding struct{ manager.Manager }

func (forbidding) GetConfig() *rest.Config       { return &rest.Config{Host: "http://server", QPS: -1} }
func (f forbidding) GetHTTPClient() *http.Client { return &http.Client{Transport: f} }

func (forbidding) RoundTrip(*http.Request) (*http.Response, error) {
	const body = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"forbidden","reason":"Forbidden","code":403}`
	return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// TestNodeKeepsItsPlaceAmongThoseThatWait has a node that waits for a Job before the Job is made.
func TestNodeKeepsItsPlaceAmongThoseThatWait(t *testing.T) {
	r := newMemory(1).controller()
	events, err := r.jobs.Events(forbidding{})
	require.NoError(t, err)
	require.NoError(t, events.Start(t.Context(), workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())))
	rules := &api.NodeRolloutPolicy{}
	rules.Spec.Jobs.After = &api.NodeJob{Namespace: "jobs", Name: "check"}
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Name: "check"}}
	o := &rollout{pool: &mcfgv1.MachineConfigPool{}, policy: rules, jobSources: map[policy.Step]policy.JobSource{policy.After: {CronJob: cron}}}
	o.jobs.Waiting = []plan.JobWait{{Node: "a"}, {Node: "b"}}
	r.jobs.Follow(t.Context(), jobsOf([]*rollout{o}))
	for _, name := range []string{"a", "c"} {
		r.makeJob(t.Context(), o, policy.After, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	var names []string
	for _, w := range o.jobs.Waiting {
		names = append(names, w.Node)
	}
	assert.Equal(t, []string{"a", "b", "c"}, names)
	assert.Equal(t, time.Second, o.wait)
	assert.Equal(t, "waits for a Job of CronJob jobs/check, which cannot be created: forbidden", o.jobs.Waiting[0].Why)
}
