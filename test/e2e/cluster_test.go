package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/cluster-version/cvo/test/e2e/program"
)

const (
	// patience is how long a step may take on a busy machine. Only tests that fail wait so long.
	patience = 10 * time.Minute
	tick     = 500 * time.Millisecond
)

// testCluster checks the cluster itself, on which the other tests rely.
func testCluster(t *testing.T, s *site) {
	ctx := t.Context()
	client, err := kubernetes.NewForConfig(s.Config)
	require.NoError(t, err)
	namespace := newNamespace(t, client)
	image := pushProbe(t, s, "platform/probe:1", nil)
	data := pushProbe(t, s, "components/data:1", map[string][]byte{"words/greeting": []byte("good morning")})
	givePullSecret(t, s, client, namespace)

	workers := s.Workers
	require.Len(t, workers, 2)
	pods := map[string]*corev1.Pod{"first": probe("first", workers[0], image), "second": probe("second", workers[1], image)}
	pods["first"].Spec.Volumes = []corev1.Volume{{
		Name: "data", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: data}},
	}}
	pods["first"].Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data", ReadOnly: true}}
	for _, pod := range pods {
		_, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "second"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"probe": "second"},
		Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
	}}
	_, err = client.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{})
	require.NoError(t, err)
	for name := range pods {
		pods[name] = waitForPod(t, client, namespace, name)
	}

	get := func(path string, parameters map[string]string) (string, error) {
		request := client.CoreV1().Pods(namespace).ProxyGet("http", "first", "8080", path, parameters)
		answer, err := request.DoRaw(ctx)
		return string(answer), err
	}
	answers := func(path, parameter, value, want string) func(*assert.CollectT) {
		return func(c *assert.CollectT) {
			answer, err := get(path, map[string]string{parameter: value})
			require.NoError(c, err, answer)
			assert.Equal(c, want, answer)
		}
	}
	t.Run("connects pods on different nodes", func(t *testing.T) {
		require.NotEqual(t, pods["first"].Spec.NodeName, pods["second"].Spec.NodeName)
		assert.EventuallyWithT(t, answers("/get", "url", "http://"+pods["second"].Status.PodIP+":8080/name", "second"), patience, tick)
	})
	t.Run("resolves the name of a service", func(t *testing.T) {
		assert.EventuallyWithT(t, answers("/get", "url", "http://second."+namespace+".svc.cluster.local/name", "second"), patience, tick)
	})
	t.Run("mounts an image as a volume", func(t *testing.T) {
		assert.EventuallyWithT(t, answers("/file", "path", "/data/words/greeting", "good morning"), patience, tick)
	})
	t.Run("pulls images from the registry", func(t *testing.T) {
		requests, err := s.registry.Requests(ctx)
		require.NoError(t, err)
		asked := false
		for _, request := range requests {
			asked = asked || request.Method == "GET" && request.Status == 200 && request.Path == "/v2/platform/probe/manifests/"+image[len(image)-71:]
		}
		assert.True(t, asked, "want a manifest read by digest in %v", requests)
	})
	t.Run("needs the password for a private image", func(t *testing.T) {
		pod := probe("stranger", workers[0], image)
		pod.Spec.ServiceAccountName = "stranger"
		pod.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}
		_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		require.NoError(t, err)
		assert.EventuallyWithT(t, func(c *assert.CollectT) {
			pod, err := client.CoreV1().Pods(namespace).Get(ctx, "stranger", metav1.GetOptions{})
			require.NoError(c, err)
			require.Len(c, pod.Status.ContainerStatuses, 1)
			require.NotNil(c, pod.Status.ContainerStatuses[0].State.Waiting)
			assert.Contains(c, pod.Status.ContainerStatuses[0].State.Waiting.Message, "authorization failed")
		}, patience, tick)
	})
}

// newNamespace creates a namespace that is deleted at the end of the test.
func newNamespace(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	made, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		assert.NoError(t, client.CoreV1().Namespaces().Delete(ctx, made.Name, metav1.DeleteOptions{}))
	})
	return made.Name
}

// givePullSecret allows pods of a namespace's default ServiceAccount to pull with the password.
func givePullSecret(t *testing.T, s *site, client kubernetes.Interface, namespace string) {
	t.Helper()
	content, err := s.registry.PullSecret()
	require.NoError(t, err)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "pull"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: content},
	}
	_, err = client.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		account, err := client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		require.NoError(c, err)
		account.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
		_, err = client.CoreV1().ServiceAccounts(namespace).Update(t.Context(), account, metav1.UpdateOptions{})
		require.NoError(c, err)
	}, patience, tick)
}

// pushProbe pushes an image of the probe with files and returns its pullspec.
func pushProbe(t *testing.T, s *site, tag string, files map[string][]byte) string {
	t.Helper()
	binary, err := program.Build(t.Context(), t.TempDir(), "test/e2e/probe")
	require.NoError(t, err)
	image, err := program.Image(binary, files)
	require.NoError(t, err)
	pullspec, err := s.registry.Push(t.Context(), tag, image)
	require.NoError(t, err)
	return pullspec
}

func probe(name, node, image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"probe": name}},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "probe", Image: image, Args: []string{"serve"}}},
		},
	}
}

// waitForPod returns a running pod, or fails the test with the pod's state.
func waitForPod(t *testing.T, client kubernetes.Interface, namespace, name string) (running *corev1.Pod) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		pod, err := client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(c, err)
		require.Equal(c, corev1.PodRunning, pod.Status.Phase, "%+v", pod.Status.ContainerStatuses)
		running = pod
	}, patience, tick)
	return running
}
