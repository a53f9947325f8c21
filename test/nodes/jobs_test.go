//go:build linux

package nodes_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	nodepool "github.com/cluster-version/cvo/pkg/node/pool"
)

// jobNamespace creates a namespace for Jobs.
func (s *stage) jobNamespace() string {
	s.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-jobs-"}}
	require.NoError(s.t, s.client.Create(s.t.Context(), namespace))
	return namespace.Name
}

// permitJobs allows the controller to make Jobs in a namespace.
func (s *stage) permitJobs(namespace string) {
	s.t.Helper()
	s.bindJobRole(namespace, "ClusterRole", api.NodeJobRole)
}

func (s *stage) bindJobRole(namespace, kind, role string) {
	s.t.Helper()
	require.NoError(s.t, s.client.Create(s.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: api.MachineConfigNamespace, Name: api.MachineConfigController}},
	}))
}

// readingRole creates a role that allows reading Jobs and CronJobs only.
func (s *stage) readingRole(namespace string) (name string) {
	s.t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "reader"}}
	role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{"batch"}, Resources: []string{"jobs", "cronjobs"}, Verbs: []string{"list", "watch"}}}
	require.NoError(s.t, s.client.Create(s.t.Context(), role))
	return role.Name
}

// cronJob creates CronJob check.
func (s *stage) cronJob(namespace string, isSuspended bool) *batchv1.CronJob {
	s.t.Helper()
	c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "check"}}
	c.Spec.Schedule, c.Spec.Suspend = "@yearly", new(isSuspended)
	c.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "check", Image: "registry.example.com/check"}},
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), c))
	return c
}

// runningJob waits for the only Job in a namespace that runs. It is for a node and a step.
func (s *stage) runningJob(namespace, node, step string) (job batchv1.Job) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		var list batchv1.JobList
		require.NoError(c, s.client.List(s.t.Context(), &list, client.InNamespace(namespace)))
		var running []batchv1.Job
		for _, j := range list.Items {
			if len(j.Status.Conditions) == 0 {
				running = append(running, j)
			}
		}
		require.Len(c, running, 1)
		job = running[0]
		assert.Equal(c, node, job.Annotations[api.NodeJobNodeAnnotation])
		assert.Equal(c, step, job.Spec.Template.Spec.Containers[0].Env[2].Value)
	})
	return job
}

// end plays the controller of Jobs. A Job with a reason fails.
func (s *stage) end(job batchv1.Job, reason string) {
	s.t.Helper()
	now := metav1.Now()
	job.Status.StartTime = &now
	first, last := batchv1.JobSuccessCriteriaMet, batchv1.JobComplete
	if reason != "" {
		first, last = batchv1.JobFailureTarget, batchv1.JobFailed
	} else {
		job.Status.CompletionTime = &now
	}
	for _, kind := range []batchv1.JobConditionType{first, last} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, LastProbeTime: now, LastTransitionTime: now,
		})
	}
	require.NoError(s.t, s.client.Status().Update(s.t.Context(), &job))
}

// poolWaits waits until the worker pool says why its nodes wait.
func (s *stage) poolWaits(why string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		p := &mcfgv1.MachineConfigPool{}
		require.NoError(c, s.client.Get(s.t.Context(), client.ObjectKey{Name: api.WorkerPool}, p))
		assert.Contains(c, nodepool.Message(p, nodepool.NodesWaiting), why)
	})
}

// jobsCreated returns the number of Jobs that the controller has made since a time.
func (s *stage) jobsCreated(since time.Time) (created int) {
	s.t.Helper()
	for _, r := range s.requests(since) {
		if r.Object.Resource == "jobs" && r.Verb == "create" && r.Code == http.StatusCreated {
			created++
		}
	}
	return created
}

// TestJobsRunBeforeAndAfterUpdates updates two nodes, one at a time. The first Job fails and holds its node. Controllers are replaced while Jobs run.
func TestJobsRunBeforeAndAfterUpdates(t *testing.T) {
	started := time.Now()
	s := start(t, "n1", "n2")
	s.config("00-worker", nil)
	before := s.updated("")
	for _, r := range s.requests(started) {
		assert.NotEqual(t, "batch", r.Object.Group, "no policy has Jobs: %s %s", r.Verb, r.Object)
	}
	namespace := s.jobNamespace()
	s.permitJobs(namespace)
	cron := s.cronJob(namespace, true)
	hour := metav1.Duration{Duration: time.Hour}
	s.policy(func(spec *api.NodeRolloutPolicySpec) {
		spec.Jobs.Before = &api.NodeJob{Namespace: namespace, Name: cron.Name, Deadline: hour}
		spec.Jobs.After = &api.NodeJob{Namespace: namespace, Name: cron.Name, Deadline: hour}
	})
	s.policyCondition(api.PolicyJobsFailed, api.ReasonNoJobFailed)
	begun := time.Now()
	s.config("50-a", map[string]string{"/etc/a": "1"})

	job := s.runningJob(namespace, "n1", "Before")
	waits := fmt.Sprintf("Node n1 waits for Job %s/%s", namespace, job.Name)
	s.waits(waits, before)
	plan := s.planOf(api.WorkerPool, "")
	assert.Equal(t, []string{
		"Before the update of each node, a Job of CronJob " + namespace + "/check must succeed within 60m",
		"After the update of each node, a Job of CronJob " + namespace + "/check must succeed within 60m",
	}, plan.Jobs)
	assert.Equal(t, waits, plan.Reported)
	assert.Equal(t, new(int64(3600)), job.Spec.ActiveDeadlineSeconds)
	assert.Equal(t, []corev1.EnvVar{{Name: "CVO_NODE", Value: "n1"}, {Name: "CVO_CONFIG", Value: plan.Target}, {Name: "CVO_STEP", Value: "Before"}},
		job.Spec.Template.Spec.Containers[0].Env)
	assert.Equal(t, cron.UID, job.OwnerReferences[0].UID)
	assert.Nil(t, metav1.GetControllerOf(&job), "the CronJob would delete it with its history")

	s.restart()
	s.end(job, "BackoffLimitExceeded")
	second := s.runningJob(namespace, "n2", "Before")
	held := "is held, because Job " + namespace + "/" + job.Name + " failed: BackoffLimitExceeded: delete the Job to repeat it"
	s.waits("Node n1 "+held+"; Node n2 waits for Job ", before)
	assert.Equal(t, "node n1 "+held, s.policyCondition(api.PolicyJobsFailed, api.ReasonJobFailed))
	s.policyCondition(api.PolicyHalted, api.ReasonWithinFailureBudget)
	assert.Contains(t, s.planOf(api.WorkerPool, "").Jobs, "A Job failed: node n1 "+held)

	s.end(second, "")
	after := s.runningJob(namespace, "n2", "After")
	s.poolWaits("Node n2 waits for Job " + namespace + "/" + after.Name)
	assert.Equal(t, plan.Target, s.node("n2").Annotations[api.NodeJobAnnotation])
	assert.Contains(t, string(s.cvo("", "nodes", "status")), "waits for the Job after its update")
	// Without its failed Job, the first node waits for the slot of the second one.
	require.NoError(t, s.client.Delete(t.Context(), &job, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	s.policyCondition(api.PolicyJobsFailed, api.ReasonNoJobFailed)
	s.restart()
	s.poolWaits("Node n2 waits for Job " + namespace + "/" + after.Name)
	assert.Equal(t, 3, s.jobsCreated(begun))
	assert.Equal(t, before, s.node("n1").Annotations[api.DesiredConfigAnnotation])

	s.end(after, "")
	again := s.runningJob(namespace, "n1", "Before")
	assert.Equal(t, job.Name, again.Name)
	assert.NotContains(t, s.node("n2").Annotations, api.NodeJobAnnotation)
	s.end(again, "")
	s.end(s.runningJob(namespace, "n1", "After"), "")
	s.updated(before)
	s.eventually(func(c *assert.CollectT) { assert.NotContains(c, s.node("n1").Annotations, api.NodeJobAnnotation) })
	assert.Equal(t, 5, s.jobsCreated(begun))
	for _, r := range s.requests(started) {
		isWatch := r.Verb == "list" || r.Verb == "watch" || r.Verb == "create" && r.Object.Resource == "jobs"
		assert.True(t, isWatch || r.Object.Group != "batch", "%s %s", r.Verb, r.Object)
	}
}

// TestCanariesIncludeTheirJobs has three nodes that could all start at once. One is the canary, and the others get no Job before it is done with both of its.
func TestCanariesIncludeTheirJobs(t *testing.T) {
	s := start(t, "n1", "n2", "n3")
	s.config("00-worker", nil)
	before := s.updated("")
	three := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"maxUnavailable": 3}}`))
	require.NoError(t, s.client.Patch(t.Context(), &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: api.WorkerPool}}, three))
	namespace := s.jobNamespace()
	s.permitJobs(namespace)
	s.cronJob(namespace, true)
	check := api.NodeJob{Namespace: namespace, Name: "check", Deadline: metav1.Duration{Duration: time.Minute}}
	begun := time.Now()
	s.policy(func(spec *api.NodeRolloutPolicySpec) {
		spec.Canary = &api.NodeCanary{Nodes: intstr.FromInt32(1), Soak: metav1.Duration{Duration: time.Hour}}
		spec.Jobs = api.NodeJobs{Before: new(check), After: new(check)}
	})
	s.policyCondition(api.PolicyJobsFailed, api.ReasonNoJobFailed)
	s.config("50-a", map[string]string{"/etc/a": "1"})
	s.end(s.runningJob(namespace, "n1", "Before"), "")
	after := s.runningJob(namespace, "n1", "After")
	canary := func() *api.NodeCanaryStatus {
		p := &api.NodeRolloutPolicy{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: api.WorkerPool}, p))
		return p.Status.Canary
	}
	assert.Nil(t, canary())
	s.end(after, "")
	s.eventually(func(c *assert.CollectT) { assert.NotNil(c, canary()) })
	s.poolWaits("waits until the canaries of NodeRolloutPolicy worker have run the config")
	assert.Equal(t, 2, s.jobsCreated(begun))
	assert.Equal(t, before, s.node("n2").Annotations[api.DesiredConfigAnnotation])
}

// TestFailedJobsExhaustTheFailureBudget has Jobs before and after the update that count as failed. In between, an administrator deletes the failed one.
func TestFailedJobsExhaustTheFailureBudget(t *testing.T) {
	s := start(t, "n1", "n2")
	s.config("00-worker", nil)
	before := s.updated("")
	namespace := s.jobNamespace()
	s.permitJobs(namespace)
	s.cronJob(namespace, true)
	check := api.NodeJob{Namespace: namespace, Name: "check", Deadline: metav1.Duration{Duration: time.Minute}, OnFailure: api.NodeJobFail}
	s.policy(func(spec *api.NodeRolloutPolicySpec) {
		spec.FailureBudget = new(intstr.FromInt32(1))
		spec.Jobs = api.NodeJobs{Before: new(check), After: new(check)}
	})
	s.policyCondition(api.PolicyJobsFailed, api.ReasonNoJobFailed)
	s.config("50-a", map[string]string{"/etc/a": "1"})

	halted := func(job batchv1.Job, node string) (why string) {
		s.t.Helper()
		why = fmt.Sprintf("1 node failed, and the failure budget is 1: node %s counts as failed, because Job %s/%s failed: DeadlineExceeded: "+
			"delete the Job to repeat it", node, namespace, job.Name)
		s.eventually(func(c *assert.CollectT) {
			assert.Equal(c, why, s.policyCondition(api.PolicyHalted, api.ReasonFailureBudgetExhausted))
		})
		return why
	}
	first := s.runningJob(namespace, "n1", "Before")
	s.end(first, "DeadlineExceeded")
	assert.Equal(t, "waits, because NodeRolloutPolicy worker halted the pool: "+halted(first, "n1"), s.planned(""))
	s.restart()
	s.waits("Node n1 counts as failed, because Job ", before)
	halted(first, "n1")

	require.NoError(t, s.client.Delete(t.Context(), &first, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	s.end(s.runningJob(namespace, "n1", "Before"), "")
	last := s.runningJob(namespace, "n1", "After")
	s.end(last, "DeadlineExceeded")
	halted(last, "n1")
	s.poolWaits("Node n1 counts as failed, because Job " + namespace + "/" + last.Name)
	assert.Equal(t, before, s.node("n2").Annotations[api.DesiredConfigAnnotation])
	// A policy without Jobs releases the node.
	s.policy(func(spec *api.NodeRolloutPolicySpec) { spec.Jobs = api.NodeJobs{} })
	s.updated(before)
	s.eventually(func(c *assert.CollectT) { assert.NotContains(c, s.node("n1").Annotations, api.NodeJobAnnotation) })
	s.policyCondition(api.PolicyHalted, api.ReasonWithinFailureBudget)
}

// TestNodesWaitForCronJobsThatCannotBeUsed corrects a policy, the permissions and a CronJob step by step.
//
//threat:node-job-namespace
func TestNodesWaitForCronJobsThatCannotBeUsed(t *testing.T) {
	s := start(t, "n1")
	s.config("00-worker", nil)
	before := s.updated("")
	namespace := s.jobNamespace()
	s.policy(func(spec *api.NodeRolloutPolicySpec) {
		spec.FailureBudget = new(intstr.FromInt32(1))
		spec.Jobs.After = &api.NodeJob{Namespace: api.MachineConfigNamespace, Name: "check", Deadline: metav1.Duration{Duration: time.Minute}}
	})
	s.policyCondition(api.PolicyAccepted, api.ReasonPolicyAccepted)
	s.config("50-a", map[string]string{"/etc/a": "1"})
	waits := func(why string) {
		s.t.Helper()
		s.waits("Node n1 waits for CronJob "+why, before)
		s.eventually(func(c *assert.CollectT) { // the reason is the same as before
			assert.Equal(c, "Each node waits for CronJob "+why, s.policyCondition(api.PolicyJobsFailed, api.ReasonJobNotCreated))
		})
		assert.Contains(t, s.planned(""), "waits for CronJob "+why)
		s.policyCondition(api.PolicyHalted, api.ReasonWithinFailureBudget)
	}
	waits(api.MachineConfigNamespace + "/check, which is in the namespace of the node stage: use a CronJob in another one")
	s.policy(func(spec *api.NodeRolloutPolicySpec) { spec.Jobs.After.Namespace = namespace })
	s.poolWaits("Node n1 waits for CronJob " + namespace + "/check, which cannot be read: ")
	s.poolWaits("bind ClusterRole machine-config-controller-jobs in namespace " + namespace +
		" to account machine-config-controller of namespace openshift-machine-config-operator")
	s.bindJobRole(namespace, "Role", s.readingRole(namespace))
	waits(namespace + "/check, which does not exist: create it")
	cron := s.cronJob(namespace, false)
	waits(namespace + "/check, which is not suspended: set its spec.suspend to true, so that it runs for nodes only")
	suspend := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"suspend": true}}`))
	require.NoError(t, s.client.Patch(t.Context(), cron, suspend))
	s.poolWaits("Node n1 waits for a Job of CronJob " + namespace + "/check, which cannot be created: jobs.batch is forbidden")
	s.permitJobs(namespace)
	s.eventually(func(c *assert.CollectT) { // without another event, the next attempt is 30 s later
		s.hold("n1", time.Now().String())
		p := &mcfgv1.MachineConfigPool{}
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: api.WorkerPool}, p))
		assert.Contains(c, nodepool.Message(p, nodepool.NodesWaiting), "Node n1 waits for Job ")
	})
	s.end(s.runningJob(namespace, "n1", "After"), "")
	s.updated(before)
}

// TestDefinitionRejectsInvalidJobs has Jobs without a deadline, and values that no CronJob can have.
func TestDefinitionRejectsInvalidJobs(t *testing.T) {
	s := prepare(t)
	create := func(job map[string]any) error {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"jobs": map[string]any{"before": job}}}}
		object.SetGroupVersionKind(api.NodeRolloutPolicyVersion.WithKind(api.NodeRolloutPolicyKind))
		object.SetGenerateName("p-")
		return s.client.Create(t.Context(), object)
	}
	valid := func(field string, value any) map[string]any {
		job := map[string]any{"namespace": "backup", "name": "check.v1", "deadline": "1h30m", "onFailure": "Fail"}
		if job[field] = value; value == nil {
			delete(job, field)
		}
		return job
	}
	require.NoError(t, create(valid("onFailure", nil)))
	for field, values := range map[string][]any{
		"namespace": {nil, "", "A", "a.b"}, "name": {nil, "", "a/b"}, "deadline": {nil, "", "soon", "-1m", "0s", "0h0m"}, "onFailure": {"", "Ignore"},
	} {
		for _, value := range values {
			assert.True(t, apierrors.IsInvalid(create(valid(field, value))), "%s: %v", field, value)
		}
	}
}
