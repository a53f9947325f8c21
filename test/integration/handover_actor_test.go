package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
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

// replica is a pod of the operator's Deployment with the process that it stands for.
type replica struct {
	pod, image string
	// user is who the audit log says that it is.
	user string
	proc *process
}

// replicas plays what a control plane without controllers and kubelets lacks: it starts real processes as the pods of the
// operator's own Deployment, and replaces them one by one when the Deployment's image changes.
type replicas struct {
	*platform
	clients kubernetes.Interface
	args    []string
	// broken are images that cannot be pulled.
	broken map[string]bool
	// leaderFirst has the pod that leads replaced first, else last.
	leaderFirst bool

	mu    sync.Mutex
	next  int
	pods  []*replica
	ended []*replica
}

// deploy begins to play; what it cannot do fails the test.
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

// set makes a change that reconcile sees as a whole.
func (r *replicas) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// reconcile does one step towards what the Deployment asks for: with maxSurge 1 and maxUnavailable 0 a new pod first,
// then an old one's end.
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
	// Pods that wait for their image go at once when another is asked for.
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

// oldest is the pod of another image that is the next to go.
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

// holder is the pod that holds the Lease. Every process calls itself after this machine, so it is the one that has written
// the Lease last.
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

// writerOfLease is the user who wrote the Lease last.
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
	if r.broken[image] {
		object.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			Name: d.Spec.Template.Spec.Containers[0].Name, Image: image,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "ImagePullBackOff", Message: `Back-off pulling image "x": ErrImagePull: not found`,
			}},
		}}}
	} else {
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

// account makes a user of its own for a pod, so that the audit log tells who wrote what, and returns a kubeconfig.
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
	proc := &process{Cmd: exec.Command(filepath.Join(binaries, "cvo"), slices.Concat([]string{
		"start", "--release-image", pod.image, "--trust", r.trust, "--payload-cache", filepath.Join(r.dir, "cache"), "--listen", "",
	}, r.args)...), log: log.Name(), exited: make(chan struct{})}
	proc.Stdout, proc.Stderr = log, log
	proc.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "POD_NAMESPACE="+api.OperatorNamespace, "POD_NAME="+pod.pod)
	if err := proc.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(proc.exited)
		_ = proc.Wait()
		_ = log.Close()
	}()
	return proc, nil
}

func (r *replicas) remove(ctx context.Context, pod *replica) error {
	if pod.proc != nil {
		_ = pod.proc.Process.Signal(syscall.SIGTERM)
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

// settled waits until the Deployment's pods all run an image, and returns them.
func (r *replicas) settled(image string) []*replica {
	r.t.Helper()
	var pods []*replica
	require.Eventually(r.t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		pods = slices.Clone(r.pods)
		return len(pods) == 2 && !slices.ContainsFunc(pods, func(p *replica) bool { return p.image != image })
	}, time.Minute, 20*time.Millisecond, "two replicas of %s", image)
	return pods
}

// leading waits until one of the pods holds the Lease, and returns it and another one.
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
	}, time.Minute, 50*time.Millisecond, "a replica to lead")
	return leader, other
}

// everybody are all that there are and were.
func (r *replicas) everybody() []*replica {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.ended, r.pods)
}

// users are those of the replicas of an image.
func (r *replicas) users(image string) map[string]bool {
	users := map[string]bool{}
	for _, pod := range r.everybody() {
		if pod.image == image && pod.user != "" {
			users[pod.user] = true
		}
	}
	return users
}

// stopped stops a process as SIGSTOP does, until the returned function is called.
func (pod *replica) stopped(t *testing.T) (goOn func()) {
	t.Helper()
	require.NoError(t, pod.proc.Process.Signal(syscall.SIGSTOP))
	return func() { require.NoError(t, pod.proc.Process.Signal(syscall.SIGCONT)) }
}
