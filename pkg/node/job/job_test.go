package job

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/policy"
)

// server is the connection to an API server whose watches show nothing.
type server struct {
	manager.Manager

	mutex sync.Mutex
	// stored is the only Job; nil if there is none.
	stored *batchv1.Job
	// rejects reports whether the server rejects each Job.
	rejects bool
	// created and asked are the numbers of requests to make a Job, and for a Job by its name. added is the number of requested reconciles.
	created, asked, added int
}

func (s *server) GetConfig() *rest.Config     { return &rest.Config{Host: "http://server", QPS: -1} }
func (s *server) GetHTTPClient() *http.Client { return &http.Client{Transport: s} }

// queue counts the requested reconciles.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	server *server
}

func (q queue) Add(reconcile.Request) {
	q.server.mutex.Lock()
	defer q.server.mutex.Unlock()
	q.server.added++
}

func (s *server) store(job *batchv1.Job) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.stored = job
}

func (s *server) counts() (asked, added int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.asked, s.added
}

// silent is a watch without events.
type silent struct{ context.Context }

func (w silent) Read([]byte) (int, error) {
	<-w.Done()
	return 0, io.EOF
}

func (silent) Close() error { return nil }

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	answer := func(code int, body io.ReadCloser) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, nil
	}
	if r.URL.Query().Has("watch") {
		return answer(http.StatusOK, silent{r.Context()})
	}
	const rejection = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too many","reason":"Forbidden","code":403}`
	code, body := http.StatusOK, `{"kind":"CronJobList","apiVersion":"batch/v1","metadata":{"resourceVersion":"1"},"items":[]}`
	switch isJobs := strings.HasSuffix(r.URL.Path, "/jobs"); {
	case r.Method == http.MethodPost && s.rejects:
		code, body = http.StatusForbidden, rejection
		s.created++
	case r.Method == http.MethodPost:
		code, body = http.StatusCreated, `{"kind":"Job","apiVersion":"batch/v1"}`
		s.created++
	case isJobs:
		list := batchv1.JobList{TypeMeta: metav1.TypeMeta{Kind: "JobList", APIVersion: "batch/v1"}}
		list.ResourceVersion = "1"
		if r.URL.Query().Has("fieldSelector") {
			s.asked++
			if s.stored != nil && r.URL.Query().Get("fieldSelector") == "metadata.name="+s.stored.Name {
				list.Items = []batchv1.Job{*s.stored}
			}
		}
		encoded, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		body = string(encoded)
	}
	return answer(code, io.NopCloser(strings.NewReader(body)))
}

var check = &api.NodeJob{Namespace: "jobs", Name: "check"}

// start returns a Watcher of a CronJob.
func (s *server) start(t *testing.T) *Watcher {
	t.Helper()
	w := NewWatcher("stage", clock.RealClock{})
	events, err := w.Events(s)
	require.NoError(t, err)
	require.NoError(t, events.Start(t.Context(), queue{server: s}))
	w.Follow(t.Context(), []*api.NodeJob{check})
	return w
}

func jobFor(node string) *batchv1.Job {
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: check.Namespace, Name: check.Name}}
	return policy.NewJob(cron, time.Minute, policy.Before, node, "v1")
}

func TestJobThatTheWatchDoesNotShowIsLookedUp(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*batchv1.Job)
		want   policy.JobState
	}{
		{"it runs", func(*batchv1.Job) {}, policy.JobRunning},
		{"it has ended", func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		}, policy.JobSucceeded},
		{"it has no label", func(j *batchv1.Job) { j.Labels = nil }, policy.JobForeign},
		{"it is of another CronJob", func(j *batchv1.Job) { j.Labels[api.NodeJobLabel] = "other" }, policy.JobForeign},
		{"it does not exist", nil, policy.JobAbsent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, job := &server{}, jobFor("n1")
				w := s.start(t)
				state := func() policy.JobState {
					synctest.Wait()
					state, _ := policy.StateOf(w.Source(check).Jobs[job.Name])
					return state
				}
				time.Sleep(time.Second)
				_, _, err := w.Create(t.Context(), check, job)
				require.NoError(t, err)
				if tt.change != nil {
					stored := job.DeepCopy()
					stored.UID = "1"
					tt.change(stored)
					s.store(stored)
				}
				time.Sleep(unseenAge)
				assert.Equal(t, policy.JobRunning, state(), "the event may be late")
				asked, before := s.counts()
				assert.Zero(t, asked)

				time.Sleep(unseenAge)
				assert.Equal(t, tt.want, state())
				asked, after := s.counts()
				assert.Equal(t, 1, asked)
				assert.Equal(t, tt.want != policy.JobRunning, after > before, "a new state is an event")

				s.store(nil)
				time.Sleep(unseenAge)
				assert.Equal(t, policy.JobAbsent, state(), "an administrator may delete it")
			})
		})
	}
}

func TestRejectedJobIsMadeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{rejects: true}
		w := s.start(t)
		create := func(node string) time.Duration {
			_, after, err := w.Create(t.Context(), check, jobFor(node))
			assert.Equal(t, s.rejects, err != nil)
			assert.NotContains(t, w.Source(check).Jobs, jobFor(node).Name)
			return after
		}
		assert.Equal(t, time.Second, create("n1"))
		assert.Equal(t, time.Second, create("n1"))
		assert.Equal(t, 1, s.created)
		assert.Equal(t, time.Second, create("n2"), "another Job does not wait")
		assert.Equal(t, 2, s.created)
		time.Sleep(time.Second)
		assert.Equal(t, 2*time.Second, create("n1"))
		for range 10 {
			time.Sleep(create("n1"))
		}
		assert.Equal(t, time.Minute, create("n1"))
		assert.Len(t, w.sources[keyOf(check)].rejected, 1, "nothing needs the other one any more")

		s.rejects = false
		time.Sleep(time.Minute)
		isNew, after, err := w.Create(t.Context(), check, jobFor("n1"))
		require.NoError(t, err)
		assert.True(t, isNew)
		assert.Zero(t, after)
		assert.Empty(t, w.sources[keyOf(check)].rejected)
	})
}
