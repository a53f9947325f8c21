package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/cluster-version/cvo/pkg/api"
)

// replica is a pod of the operator's Deployment and its process.
type replica struct {
	pod, image string
	// user is the pod's user name in the audit log.
	user string
	proc *process
}

// replicas plays the controllers and kubelets that the control plane lacks. It starts real processes as the pods of the operator's own
// Deployment and replaces them one by one when the Deployment's image changes.
type replicas struct {
	*platform
	clients kubernetes.Interface
	args    []string
	// broken lists the images that cannot be pulled.
	broken map[string]bool
	// oneNode is true for a cluster with a single node whose network the pods share: only one pod of the Deployment fits.
	oneNode bool
	// leaderFirst replaces the leading pod first instead of last.
	leaderFirst bool

	mu    sync.Mutex
	next  int
	pods  []*replica
	ended []*replica
}

// deploy starts to play the Deployment's controller. A failure of it fails the test.
func (p *platform) deploy(args ...string) *replicas {
	p.t.Helper()
	r := &replicas{platform: p, clients: kubernetes.NewForConfigOrDie(p.env.Config("kubelet")), args: args, broken: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := r.reconcile(ctx); err != nil && ctx.Err() == nil {
				p.t.Logf("playing the Deployment's controller: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	p.t.Cleanup(func() {
		cancel()
		<-done
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, pod := range r.pods {
			pod.end()
		}
		if p.t.Failed() {
			for _, pod := range slices.Concat(r.ended, r.pods) {
				if pod.proc != nil {
					p.t.Logf("%s (%s):\n%s", pod.pod, pod.image, tail(pod.proc.log))
				}
			}
		}
	})
	return r
}

// set makes a change under the lock, so that reconcile sees either all of it or nothing.
func (r *replicas) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// reconcile moves one step towards the Deployment's spec. With maxSurge 1 and maxUnavailable 0, it adds a new pod before it removes an old
// one.
func (r *replicas) reconcile(ctx context.Context) error {
	d, err := r.clients.AppsV1().Deployments(api.OperatorNamespace).Get(ctx, api.OperatorDeployment, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	image, want := d.Spec.Template.Spec.Containers[0].Image, int(ptr.Deref(d.Spec.Replicas, 1))
	// Pods that wait for their image are removed at once when the image changes.
	for _, pod := range slices.Clone(r.pods) {
		if pod.image != image && pod.proc == nil {
			return r.remove(ctx, pod)
		}
	}
	updated, running := 0, 0
	for _, pod := range r.pods {
		if pod.image == image {
			updated++
		}
		if pod.proc != nil {
			running++
		}
	}
	switch {
	case updated < want && len(r.pods) <= want:
		return r.add(ctx, d, image)
	case len(r.pods) > want && running > want:
		return r.remove(ctx, r.oldest(ctx, image))
	}
	status := map[string]any{
		"observedGeneration": d.Generation, "replicas": len(r.pods), "updatedReplicas": updated,
		"readyReplicas": running, "availableReplicas": running,
	}
	if int(d.Status.Replicas) == len(r.pods) && int(d.Status.UpdatedReplicas) == updated && int(d.Status.AvailableReplicas) == running &&
		d.Status.ObservedGeneration == d.Generation {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = r.clients.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// oldest returns the next pod to remove, one with another image.
func (r *replicas) oldest(ctx context.Context, image string) *replica {
	holder := r.holder(ctx)
	var old []*replica
	for _, pod := range r.pods {
		if pod.image != image {
			old = append(old, pod)
		}
	}
	for _, pod := range old {
		if (holder == pod.pod) == r.leaderFirst {
			return pod
		}
	}
	return old[0]
}

// holder returns the pod that holds the Lease. All processes use the host name as their identity, so it is the pod that last wrote the
// Lease.
func (r *replicas) holder(ctx context.Context) string {
	lease, err := r.clients.CoordinationV1().Leases(api.OperatorNamespace).Get(ctx, api.ClusterVersionName, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return ""
	}
	writer := r.writerOfLease()
	for _, pod := range r.pods {
		if pod.proc != nil && pod.user == writer {
			return pod.pod
		}
	}
	return ""
}

// writerOfLease returns the user who last wrote the Lease.
func (r *replicas) writerOfLease() string {
	events := r.audit(time.Now().Add(-30 * time.Second))
	for _, e := range slices.Backward(events) {
		if e.Object.Resource == "leases" && e.Write() {
			return e.User
		}
	}
	return ""
}

func (r *replicas) add(ctx context.Context, d *appsv1.Deployment, image string) error {
	r.next++
	pod := &replica{pod: fmt.Sprintf("%s-%d", d.Name, r.next), image: image}
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: pod.pod,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
	set, err := r.clients.AppsV1().ReplicaSets(d.Namespace).Create(ctx, set, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: pod.pod, Labels: d.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		},
		Spec: *d.Spec.Template.Spec.DeepCopy(),
	}
	if object, err = r.clients.CoreV1().Pods(d.Namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return err
	}
	switch {
	case r.oneNode && slices.ContainsFunc(r.pods, func(p *replica) bool { return p.proc != nil }):
		object.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
		}}}
	case r.broken[image]:
		object.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			Name: d.Spec.Template.Spec.Containers[0].Name, Image: image,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "ImagePullBackOff", Message: `Back-off pulling image "x": ErrImagePull: not found`,
			}},
		}}}
	default:
		kubeconfig, user, err := r.account(ctx, pod.pod)
		if err != nil {
			return err
		}
		pod.user = user
		if pod.proc, err = r.spawn(pod, kubeconfig); err != nil {
			return err
		}
		object.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	}
	r.pods = append(r.pods, pod)
	_, err = r.clients.CoreV1().Pods(d.Namespace).UpdateStatus(ctx, object, metav1.UpdateOptions{})
	return err
}

// account creates a user for a pod, so that the audit log shows each writer. It returns the user's kubeconfig.
func (r *replicas) account(ctx context.Context, name string) (kubeconfig, user string, err error) {
	const namespace = "default"
	accounts := r.clients.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return "", "", err
	}
	_, err = r.clients.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", "", err
	}
	token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", "", err
	}
	config, err := clientcmd.LoadFromFile(r.env.Kubeconfig)
	if err != nil {
		return "", "", err
	}
	for _, info := range config.AuthInfos {
		info.ClientCertificateData, info.ClientKeyData, info.Token = nil, nil, token.Status.Token
	}
	kubeconfig = r.kubeconfig(name)
	return kubeconfig, "system:serviceaccount:" + namespace + ":" + name, clientcmd.WriteToFile(*config, kubeconfig)
}

func (r *replicas) kubeconfig(pod string) string { return filepath.Join(r.dir, pod+".kubeconfig") }

// spawn starts the process of a pod.
func (r *replicas) spawn(pod *replica, kubeconfig string) (*process, error) {
	log, err := os.CreateTemp(r.dir, pod.pod+"-*.log")
	if err != nil {
		return nil, err
	}
	return launch(log, r.t.Logf, true, []string{"KUBECONFIG=" + kubeconfig, "POD_NAMESPACE=" + api.OperatorNamespace, "POD_NAME=" + pod.pod},
		"cvo", slices.Concat([]string{
			"start", "--release-image", pod.image, "--trust", r.trust, "--payload-cache", filepath.Join(r.dir, "cache"), "--listen", "",
		}, r.args)...)
}

func (r *replicas) remove(ctx context.Context, pod *replica) error {
	if pod.proc != nil {
		pod.proc.letEnd()
		_ = pod.proc.signal(syscall.SIGTERM) // it may have ended
		<-pod.proc.exited
	}
	r.pods = slices.DeleteFunc(r.pods, func(other *replica) bool { return other == pod })
	r.ended = append(r.ended, pod)
	return r.clients.CoreV1().Pods(api.OperatorNamespace).Delete(ctx, pod.pod, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
}

func (pod *replica) end() {
	if pod.proc != nil {
		pod.proc.kill()
	}
}

// settled waits until all pods of the Deployment run an image and returns them.
func (r *replicas) settled(image string) []*replica {
	r.t.Helper()
	var pods []*replica
	require.Eventually(r.t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		pods = slices.Clone(r.pods)
		return len(pods) == 2 && !slices.ContainsFunc(pods, func(p *replica) bool { return p.image != image })
	}, time.Minute, 20*time.Millisecond, "waiting for two replicas of %s", image)
	return pods
}

// leading waits until one of the pods holds the Lease. It returns that pod and another one.
func (r *replicas) leading() (leader, other *replica) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		holder := r.holder(r.t.Context())
		for _, pod := range r.pods {
			if pod.pod == holder {
				leader = pod
			} else {
				other = pod
			}
		}
		return leader != nil && other != nil
	}, time.Minute, 50*time.Millisecond, "waiting for a replica to lead")
	return leader, other
}

// all returns all current and former pods.
func (r *replicas) all() []*replica {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.ended, r.pods)
}

// users returns the users of the replicas with an image.
func (r *replicas) users(image string) map[string]bool {
	users := map[string]bool{}
	for _, pod := range r.all() {
		if pod.image == image && pod.user != "" {
			users[pod.user] = true
		}
	}
	return users
}

// stopped stops a process with SIGSTOP until the returned function is called.
func (pod *replica) stopped(t *testing.T) (resume func()) {
	t.Helper()
	require.NoError(t, pod.proc.signal(syscall.SIGSTOP))
	return func() { require.NoError(t, pod.proc.signal(syscall.SIGCONT)) }
}
