package retrieve

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/release"
)

// Labels of retrieval Jobs and their pods.
const (
	// appLabel is the pod label that OpenShift's operator also uses.
	appLabel = "k8s-app"
	// appName is the value of appLabel.
	appName = "retrieve-openshift-release"
	// ownerLabel marks the Jobs of a version operator. Its value is the name of the ClusterVersion.
	ownerLabel = "cvo.cluster-version.github.io/retrieves-for"
)

// Volumes, their mount points and the container of the pod.
const (
	imageVolume, imageFolder = "release", "/release"
	tokenVolume, tokenFolder = "token", "/etc/retrieval"
	tokenKey                 = "token"
	containerName            = "send-release-files"
)

// Command is the subcommand that the pod runs; its flags are FolderFlag, ServerFlag, FingerprintFlag and TokenFileFlag.
func Command() []string { return []string{"payload", "send"} }

// Flags of Command.
const (
	FolderFlag      = "folder"
	ServerFlag      = "server"
	FingerprintFlag = "fingerprint"
	TokenFileFlag   = "token-file"
)

// unprivileged is the user ID of the pod. Any user except root works, because all files that the pod reads are world-readable.
const unprivileged = 65532

// maxName is the maximum length of Job names in bytes: pods carry the name as a label.
const maxName = 63

// newName returns <ClusterVersion>-<version>-<hash>, adapted to the rules for names.
func newName(cv, version string) string {
	random := make([]byte, 5)
	_, _ = rand.Read(random) // never fails
	hash := "-" + hex.EncodeToString(random)
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, cv+"-"+version)
	if room := maxName - len(hash); len(name) > room {
		name = name[:room]
	}
	// Each part between dots must begin and end with a letter or a digit, and must not be empty.
	var parts []string
	for part := range strings.SplitSeq(name, ".") {
		if part = strings.Trim(part, "-"); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.TrimPrefix(strings.Join(parts, ".")+hash, "-")
}

func labels(cv string) map[string]string {
	return map[string]string{appLabel: appName, ownerLabel: cv}
}

// order describes the task of a Job.
type order struct {
	name    string
	image   release.Image
	options Options
	server  string
}

// job returns a Job with one pod that runs once.
func (o order) job() *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.options.Namespace, Name: o.name, Labels: labels(o.options.Name),
			Annotations: map[string]string{"kubernetes.io/description": "Sends the manifests of release image " + o.image.ByDigest() + " to the version operator."},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit:            new(int32(0)), // a second pod would have no valid token; the operator creates a new Job instead
			ActiveDeadlineSeconds:   new(int64(o.options.Deadline / time.Second)),
			TTLSecondsAfterFinished: new(int32(keptFor / time.Second)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels(o.options.Name)},
				Spec:       o.pod(),
			},
		},
	}
}

func (o order) pod() corev1.PodSpec {
	spec := corev1.PodSpec{
		AutomountServiceAccountToken: new(false),
		EnableServiceLinks:           new(false),
		RestartPolicy:                corev1.RestartPolicyNever,
		ImagePullSecrets:             o.options.PullSecrets,
		PriorityClassName:            o.options.PriorityClass,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(unprivileged)), RunAsGroup: new(int64(unprivileged)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name:            containerName,
			Image:           o.options.Sender,
			ImagePullPolicy: corev1.PullIfNotPresent,
			Args: append(Command(),
				"--"+FolderFlag+"="+imageFolder, "--"+ServerFlag+"="+o.server,
				"--"+FingerprintFlag+"="+o.options.Fingerprint, "--"+TokenFileFlag+"="+tokenFolder+"/"+tokenKey),
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("50Mi"),
			}},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			VolumeMounts: []corev1.VolumeMount{
				{Name: imageVolume, MountPath: imageFolder, ReadOnly: true},
				{Name: tokenVolume, MountPath: tokenFolder, ReadOnly: true},
			},
		}},
		Volumes: []corev1.Volume{
			{Name: imageVolume, VolumeSource: corev1.VolumeSource{
				Image: &corev1.ImageVolumeSource{Reference: o.image.ByDigest(), PullPolicy: corev1.PullIfNotPresent},
			}},
			{Name: tokenVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: o.name}}},
		},
	}
	o.place(&spec)
	return spec
}

// place keeps the pod away from ordinary nodes: root on its node has the token, and so decides which files the operator applies. Root on the
// operator's own node has the operator's credentials anyway. That node may be an ordinary one, if the control plane is hosted elsewhere.
func (o order) place(spec *corev1.PodSpec) {
	if o.options.Node != "" {
		spec.NodeName = o.options.Node
		spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} // the operator runs there despite the taints
		return
	}
	required := &corev1.NodeSelector{}
	for _, role := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: role, Operator: corev1.NodeSelectorOpExists}},
		})
		spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: role, Operator: corev1.TolerationOpExists})
	}
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
}

// secret returns the Secret with the token. Deleting the Job deletes the Secret.
func secret(job *batchv1.Job, token string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name, Labels: job.Labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Name: job.Name, UID: job.UID}},
		},
		Immutable:  new(true),
		StringData: map[string]string{tokenKey: token},
	}
}
