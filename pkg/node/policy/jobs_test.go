package policy

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/cluster-version/cvo/pkg/api"
)

func TestJobIsMadeFromItsCronJob(t *testing.T) {
	t.Parallel()
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "backup", Name: "check", UID: "1"}}
	template := &cron.Spec.JobTemplate
	template.Labels, template.Annotations = map[string]string{"team": "a"}, map[string]string{"note": "b"}
	template.Spec.Suspend, template.Spec.ActiveDeadlineSeconds, template.Spec.BackoffLimit = new(true), new(int64(1)), new(int32(3))
	own := []corev1.EnvVar{{Name: "A", Value: "b"}}
	template.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "first", Env: own}}
	template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "second"}, {Name: "third"}}
	before := cron.DeepCopy()

	job := NewJob(cron, 90*time.Second, After, "n1", "rendered-a")
	assert.Equal(t, before, cron, "the CronJob belongs to the cache")
	assert.Equal(t, "backup/"+JobName("check", After, "n1", "rendered-a"), job.Namespace+"/"+job.Name)
	assert.Equal(t, map[string]string{"team": "a", api.NodeJobLabel: "check"}, job.Labels)
	assert.Equal(t, map[string]string{"note": "b", api.NodeJobNodeAnnotation: "n1", api.NodeJobConfigAnnotation: "rendered-a"}, job.Annotations)
	assert.Equal(t, []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "check", UID: "1"}}, job.OwnerReferences)
	assert.Equal(t, new(int64(90)), job.Spec.ActiveDeadlineSeconds)
	assert.Equal(t, new(int32(3)), job.Spec.BackoffLimit)
	assert.Nil(t, job.Spec.Suspend, "its deadline would not count")
	assert.Equal(t, new(int32(24*60*60)), job.Spec.TTLSecondsAfterFinished)
	env := []corev1.EnvVar{{Name: "CVO_NODE", Value: "n1"}, {Name: "CVO_CONFIG", Value: "rendered-a"}, {Name: "CVO_STEP", Value: "After"}}
	pod := job.Spec.Template.Spec
	assert.Equal(t, append(own, env...), pod.InitContainers[0].Env)
	assert.Equal(t, env, pod.Containers[0].Env)
	assert.Equal(t, env, pod.Containers[1].Env)

	for ttl, want := range map[int32]int32{7: 86400, 90000: 90000} { // a Job that is deleted before its node starts would run again
		template.Spec.TTLSecondsAfterFinished = new(ttl)
		assert.Equal(t, new(want), NewJob(cron, time.Minute, After, "n1", "rendered-a").Spec.TTLSecondsAfterFinished)
	}
}

func TestJobNames(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, cron := range []string{"check", strings.Repeat("a.", 25) + "b", strings.Repeat("a-", 25) + "c"} {
		for _, step := range Steps() {
			for _, node := range []string{"n1", strings.Repeat("n", 253)} {
				for _, config := range []string{"rendered-a", "rendered-b"} {
					name := JobName(cron, step, node, config)
					assert.Empty(t, validation.IsDNS1123Subdomain(name), name)
					assert.LessOrEqual(t, len(name), validation.DNS1123LabelMaxLength, name)
					assert.False(t, names[name], "%s exists twice", name)
					names[name] = true
				}
			}
		}
	}
	assert.Equal(t, "check-before-ed16611682f1", JobName("check", Before, "n1", "rendered-a"), "another release must find the Job")
}

func TestStateOfAJob(t *testing.T) {
	t.Parallel()
	ours := metav1.ObjectMeta{Labels: map[string]string{api.NodeJobLabel: "check"}}
	with := func(kind batchv1.JobConditionType, status corev1.ConditionStatus, reason, message string) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: ours, Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: kind, Status: status, Reason: reason, Message: message}}}}
	}
	for _, tt := range []struct {
		name  string
		job   *batchv1.Job
		state JobState
		why   string
	}{
		{"it does not exist", nil, JobAbsent, ""},
		{"another client has made it", &batchv1.Job{}, JobForeign, ""},
		{"it has not started", &batchv1.Job{ObjectMeta: ours}, JobRunning, ""},
		{"its pods still end", with(batchv1.JobFailureTarget, corev1.ConditionTrue, "DeadlineExceeded", ""), JobRunning, ""},
		{"it may fail", with(batchv1.JobFailed, corev1.ConditionFalse, "", ""), JobRunning, ""},
		{"it has succeeded", with(batchv1.JobComplete, corev1.ConditionTrue, "CompletionsReached", ""), JobSucceeded, ""},
		{"it has failed", with(batchv1.JobFailed, corev1.ConditionTrue, "DeadlineExceeded", "too\nlate"), JobFailed, "DeadlineExceeded: too?late"},
		{"it has failed without a message", with(batchv1.JobFailed, corev1.ConditionTrue, "DeadlineExceeded", ""), JobFailed, "DeadlineExceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			state, why := StateOf(tt.job)
			assert.Equal(t, tt.state, state)
			assert.Equal(t, tt.why, why)
		})
	}
}

func TestCronJobsThatMayNotBeUsed(t *testing.T) {
	t.Parallel()
	cron := func(suspend *bool) *batchv1.CronJob {
		return &batchv1.CronJob{Spec: batchv1.CronJobSpec{Suspend: suspend}}
	}
	for _, tt := range []struct {
		name      string
		namespace string
		cron      *batchv1.CronJob
		err       error
		want      string
	}{
		{"it is suspended", "backup", cron(new(true)), nil, ""},
		{"it is not", "backup", cron(new(false)), nil, "is not suspended: "},
		{"it does not say so", "backup", cron(nil), nil, "is not suspended: "},
		{"it does not exist", "backup", nil, nil, "does not exist: create it"},
		{"it cannot be read", "backup", nil, errors.New("jobs is forbidden"), "cannot be read: jobs is forbidden: bind ClusterRole machine-config-controller-jobs in namespace backup to account machine-config-controller of namespace stage"},
		{"it is in the namespace of the stage", "stage", cron(new(true)), nil, "is in the namespace of the node stage: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := CronJobRefusal(&api.NodeJob{Namespace: tt.namespace, Name: "check"}, tt.cron, "stage", tt.err)
			if tt.want == "" {
				assert.Empty(t, got)
				return
			}
			assert.Contains(t, got, "waits for CronJob "+tt.namespace+"/check, which "+tt.want)
		})
	}
}

// TestFailedJobsAreReportedAndRead writes states to a policy, and reads them as cvo does.
func TestFailedJobsAreReportedAndRead(t *testing.T) {
	t.Parallel()
	p := &api.NodeRolloutPolicy{}
	p.Name = "worker"
	p.Spec.FailureBudget = new(intstr.FromInt32(2))
	p.Spec.Jobs.Before = &api.NodeJob{Deadline: metav1.Duration{Duration: time.Minute}}
	for _, tt := range []struct {
		name             string
		jobs             Jobs
		reason           string
		refusal, planned string // planned is the refusal if the nodes get another config
	}{
		{"no Job failed", Jobs{}, api.ReasonNoJobFailed, "", ""},
		{"a Job holds its node", Jobs{Why: "node a is held"}, api.ReasonJobFailed, "", ""},
		{
			"failed Jobs exhaust the budget",
			Jobs{Failed: 2, Why: "node a failed"},
			api.ReasonJobFailed,
			"waits, because NodeRolloutPolicy worker halted the pool: 2 nodes failed, and the failure budget is 2: node a failed", "",
		},
		{"no Job can be made", Jobs{Refusal: "waits for CronJob a/b"}, api.ReasonJobNotCreated, "waits for CronJob a/b", "waits for CronJob a/b"},
	} {
		for _, c := range tt.jobs.Report(p) {
			meta.SetStatusCondition(&p.Status.Conditions, c)
		}
		assert.Equal(t, tt.reason, meta.FindStatusCondition(p.Status.Conditions, api.PolicyJobsFailed).Reason, tt.name)
		assert.Equal(t, tt.jobs, ReportedJobs(p, false), tt.name)
		decide := func(j Jobs) string {
			return Decide([]Pool{{Name: "worker", Policy: p, Nodes: 10, Jobs: j}}, time.Time{})[0].Refusal
		}
		assert.Equal(t, tt.refusal, decide(tt.jobs), tt.name)
		assert.Equal(t, tt.planned, decide(ReportedJobs(p, true)), tt.name)
	}
	p.Status.FailedJobs = 1
	p.Spec.Jobs.Before = nil
	assert.Empty(t, Jobs{}.Report(p))
	assert.Empty(t, p.Status.Conditions)
	assert.Zero(t, p.Status.FailedJobs)
	assert.Zero(t, ReportedJobs(p, false))
	assert.Zero(t, ReportedJobs(nil, false))
}

func TestJobsNeedADeadline(t *testing.T) {
	t.Parallel()
	for _, jobs := range []api.NodeJobs{{Before: &api.NodeJob{}}, {After: &api.NodeJob{}}} {
		step := "before"
		if jobs.After != nil {
			step = "after"
		}
		assert.Equal(t, "spec.jobs."+step+".deadline is 0s: use a duration such as 30m", decideFor(api.NodeRolloutPolicySpec{Jobs: jobs}, time.Time{}).Invalid)
	}
}
