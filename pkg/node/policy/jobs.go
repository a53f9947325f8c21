package policy

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
)

// Step says when the Job of a node runs.
type Step string

// Steps.
const (
	// Before is before the update of the node.
	Before Step = "Before"
	// After is after the update of the node.
	After Step = "After"
)

// Steps returns all steps, in order.
func Steps() []Step { return []Step{Before, After} }

// Environment variables of the containers of a Job for a node.
const (
	jobNode   = "CVO_NODE"
	jobConfig = "CVO_CONFIG"
	jobStep   = "CVO_STEP"
)

// jobAge is the time after which a finished Job is deleted, unless its CronJob has a longer one. A Job that succeeded before its node can start must exist
// until then, or it would run again.
const jobAge = 24 * time.Hour

// JobName returns the name of the Job for a node and a config. It is the same in each process, so the Job is made once.
func JobName(cronJob string, step Step, node, config string) string {
	const most = 40
	digest := sha256.Sum256([]byte(strings.Join([]string{cronJob, string(step), node, config}, "\n")))
	prefix := strings.TrimRight(cronJob[:min(len(cronJob), most)], "-.")
	return fmt.Sprintf("%s-%s-%x", prefix, strings.ToLower(string(step)), digest[:6])
}

// NewJob returns the Job for a node and a config. The CronJob is an owner, but not the controller: the limits of its history would delete Jobs whose
// result is not known yet.
func NewJob(from *batchv1.CronJob, deadline time.Duration, step Step, node, config string) *batchv1.Job {
	template := from.Spec.JobTemplate.DeepCopy()
	job := &batchv1.Job{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	job.Namespace, job.Name = from.Namespace, JobName(from.Name, step, node, config)
	job.OwnerReferences = []metav1.OwnerReference{{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "CronJob", Name: from.Name, UID: from.UID}}
	job.Labels = with(job.Labels, api.NodeJobLabel, from.Name)
	job.Annotations = with(with(job.Annotations, api.NodeJobNodeAnnotation, node), api.NodeJobConfigAnnotation, config)
	job.Spec.ActiveDeadlineSeconds = new(int64(deadline / time.Second))
	job.Spec.Suspend = nil // its deadline would not count
	if ttl := job.Spec.TTLSecondsAfterFinished; ttl == nil || *ttl < int32(jobAge/time.Second) {
		job.Spec.TTLSecondsAfterFinished = new(int32(jobAge / time.Second))
	}
	env := []corev1.EnvVar{{Name: jobNode, Value: node}, {Name: jobConfig, Value: config}, {Name: jobStep, Value: string(step)}}
	for _, containers := range [][]corev1.Container{job.Spec.Template.Spec.InitContainers, job.Spec.Template.Spec.Containers} {
		for i := range containers {
			containers[i].Env = append(containers[i].Env, env...)
		}
	}
	return job
}

func with(values map[string]string, name, value string) map[string]string {
	if values == nil {
		values = map[string]string{}
	}
	values[name] = value
	return values
}

// JobState is the state of a Job.
type JobState string

// States.
const (
	JobAbsent    JobState = "Absent"
	JobRunning   JobState = "Running"
	JobSucceeded JobState = "Succeeded"
	JobFailed    JobState = "Failed"
	// JobForeign is the state of another client's Job that has the name of ours.
	JobForeign JobState = "Foreign"
)

// StateOf returns the state of a Job, which is nil if it does not exist. why is the reason of a failure. A Job whose pods still end is running.
func StateOf(job *batchv1.Job) (state JobState, why string) {
	if job == nil {
		return JobAbsent, ""
	}
	if job.Labels[api.NodeJobLabel] == "" {
		return JobForeign, ""
	}
	for _, c := range job.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return JobSucceeded, ""
		case c.Type == batchv1.JobFailed:
			return JobFailed, printable.Text(printable.Excerpt(strings.Trim(c.Reason+": "+c.Message, ": "), 256))
		}
	}
	return JobRunning, ""
}

// JobSource is the known state of a CronJob and of the Jobs that were made from it.
type JobSource struct {
	// IsKnown reports whether the CronJob and its Jobs have been read.
	IsKnown bool
	// Refusal says why no Job can be made or why the CronJob cannot be read, as a sentence without subject and period; empty if one can.
	Refusal string
	// CronJob is the CronJob, and Jobs are its Jobs by name.
	CronJob *batchv1.CronJob
	Jobs    map[string]*batchv1.Job
}

// CronJobRefusal says why no Job for a node may be made from the CronJob of a policy, as a sentence without subject and period; empty if one may. It is nil
// if it does not exist. forbidden is the namespace of the node stage: a Job there could have the permissions of its accounts. err says why the CronJob or
// its Jobs cannot be read; nil if they can.
func CronJobRefusal(job *api.NodeJob, cronJob *batchv1.CronJob, forbidden string, err error) string {
	why := ""
	switch {
	case job.Namespace == forbidden:
		why = "is in the namespace of the node stage: use a CronJob in another one"
	case err != nil:
		why = fmt.Sprintf("cannot be read: %s: bind ClusterRole %s in namespace %s to account %s of namespace %s",
			excerpt(err), api.NodeJobRole, job.Namespace, api.MachineConfigController, forbidden)
	case cronJob == nil:
		why = "does not exist: create it"
	case cronJob.Spec.Suspend == nil || !*cronJob.Spec.Suspend:
		why = "is not suspended: set its spec.suspend to true, so that it runs for nodes only"
	default:
		return ""
	}
	return fmt.Sprintf("waits for CronJob %s/%s, which %s", job.Namespace, job.Name, why)
}

// JobOf returns the Job that a policy requires at a step; nil if it requires none. The policy is nil if the pool has none.
func JobOf(p *api.NodeRolloutPolicy, step Step) *api.NodeJob {
	switch {
	case p == nil:
		return nil
	case step == Before:
		return p.Spec.Jobs.Before
	}
	return p.Spec.Jobs.After
}

func hasJobs(p *api.NodeRolloutPolicy) bool { return JobOf(p, Before) != nil || JobOf(p, After) != nil }

func checkJobs(p *api.NodeRolloutPolicy) error {
	for _, step := range Steps() {
		if job := JobOf(p, step); job != nil && job.Deadline.Duration < time.Second {
			return fmt.Errorf("spec.jobs.%s.deadline is %s: use a duration such as 30m", strings.ToLower(string(step)), job.Deadline.Duration)
		}
	}
	return nil
}

// Jobs is the state of the Jobs for a pool's nodes. The zero value means that no Job has failed, or that none is required.
type Jobs struct {
	// Failed is the number of nodes that count as failed because of a Job.
	Failed int
	// Why names the first node whose Job failed, with the reason; empty if none failed.
	Why string
	// Refusal says why no Job can be made, as a sentence without subject and period; empty if one can.
	Refusal string
}

// Report writes the number of failed nodes to the status of a policy, and removes a condition about Jobs that no longer applies. It returns the one that does;
// none if no Job is required.
func (j Jobs) Report(p *api.NodeRolloutPolicy) (conditions []metav1.Condition) {
	p.Status.FailedJobs = int32(j.Failed)
	if !hasJobs(p) {
		meta.RemoveStatusCondition(&p.Status.Conditions, api.PolicyJobsFailed)
		return nil
	}
	c := metav1.Condition{Type: api.PolicyJobsFailed, Status: metav1.ConditionFalse, Reason: api.ReasonNoJobFailed}
	switch {
	case j.Why != "":
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, api.ReasonJobFailed, j.Why
	case j.Refusal != "":
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, api.ReasonJobNotCreated, refusedNode+j.Refusal
	}
	return []metav1.Condition{c}
}

// refusedNode is the subject of a refusal in a condition.
const refusedNode = "Each node "

// ReportedJobs returns the state of Jobs that the controller has reported in the status of a policy, which is nil if the pool has none. hasNewTarget is true if
// nodes are going to get another config than the pool has: then no Job has run for it.
func ReportedJobs(p *api.NodeRolloutPolicy, hasNewTarget bool) Jobs {
	var j Jobs
	if !hasJobs(p) {
		return j
	}
	c := meta.FindStatusCondition(p.Status.Conditions, api.PolicyJobsFailed)
	switch {
	case c == nil:
	case c.Status == metav1.ConditionUnknown:
		j.Refusal = strings.TrimPrefix(c.Message, refusedNode)
	case c.Status == metav1.ConditionTrue && !hasNewTarget:
		j.Failed, j.Why = int(p.Status.FailedJobs), c.Message
	}
	return j
}

// halt returns the reasons why nodes of a pool count as failed although they run its config or have not started; empty if none does.
func (p *Pool) halt() string {
	var found []string
	if p.Health.Unhealthy > 0 {
		found = append(found, p.Health.Why)
	}
	if p.Jobs.Failed > 0 {
		found = append(found, p.Jobs.Why)
	}
	return strings.Join(found, "; ")
}
