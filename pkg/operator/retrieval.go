package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	batchv1client "k8s.io/client-go/kubernetes/typed/batch/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/retrieve"
)

// Retrieval is how release images are read.
type Retrieval string

const (
	// RetrievalRegistry asks the registry or its mirrors.
	RetrievalRegistry Retrieval = "registry"
	// RetrievalJob has a Job do it, whose image the kubelet pulls: for clusters where only nodes reach the registry.
	RetrievalJob Retrieval = "job"
)

// Retrievals are the ways there are, the default first.
func Retrievals() []string { return []string{string(RetrievalRegistry), string(RetrievalJob)} }

// ParseRetrieval reads one of Retrievals; empty is the default.
func ParseRetrieval(text string) (Retrieval, error) {
	switch r := Retrieval(text); r {
	case "":
		return RetrievalRegistry, nil
	case RetrievalRegistry, RetrievalJob:
		return r, nil
	}
	return "", fmt.Errorf("payload retrieval %q is unknown: use one of %s", text, strings.Join(Retrievals(), ", "))
}

// priorityClass is that of the operator's own pods.
const priorityClass = "system-cluster-critical"

// newRetriever is nil unless releases are retrieved by Jobs.
func newRetriever(clk clock.PassiveClock, mgr manager.Manager, core corev1client.CoreV1Interface, end *endpoint, options Options) (*retrieve.Retriever, error) {
	if options.Retrieval != RetrievalJob {
		return nil, nil //nolint:nilnil // not wanted is a valid answer
	}
	batch, err := batchv1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("creating client for retrieval Jobs: %w", err)
	}
	address := ""
	if _, port, err := net.SplitHostPort(end.address()); err == nil && options.PodIP != "" {
		address = net.JoinHostPort(options.PodIP, port)
	}
	return retrieve.New(clk, batch, core, &end.inbox, retrieve.Options{
		Name: options.Name, Namespace: options.Namespace, Sender: options.ReleaseImage,
		Address: address, Fingerprint: end.identity.Fingerprint,
		PullSecrets:   []corev1.LocalObjectReference{{Name: api.PullSecretCopy}},
		PriorityClass: priorityClass,
	})
}

// byJob is Outside without the registry.
type byJob struct {
	*Outside
	retriever *retrieve.Retriever
}

// retrievedBy returns outside as it reads releases: itself, or by Jobs if there is a retriever.
func (o *Outside) retrievedBy(retriever *retrieve.Retriever) clusterversion.Outside {
	if retriever == nil {
		return o
	}
	o.attachments = noAttachments{}
	return byJob{o, retriever}
}

// Resolve implements clusterversion.Outside for what needs no registry to be resolved.
func (o byJob) Resolve(ctx context.Context, pullspec string) (release.Image, error) {
	if _, digest, _ := strings.Cut(pullspec, "@"); digest == "" {
		return release.Image{}, fmt.Errorf("%q names a tag, and only the registry knows what a tag stands for, which --payload-retrieval=%s does not ask: give the release image by digest, as name@sha256:…", pullspec, RetrievalJob)
	}
	return o.Outside.Resolve(ctx, pullspec)
}

// Manifests implements clusterversion.Outside.
func (o byJob) Manifests(ctx context.Context, img release.Image) (fs.FS, error) {
	files, err := o.Received(ctx, img)
	if err != nil || files != nil {
		return files, err
	}
	err = o.retriever.Retrieve(ctx, img, versionOf(o.cv, img), func(ctx context.Context, stream io.Reader) error {
		files, err = o.Receive(ctx, img, stream)
		return err
	})
	if err != nil {
		return nil, err
	}
	return files, nil
}

// versionOf is what the ClusterVersion knows an image as; empty if nothing.
func versionOf(cv *configv1.ClusterVersion, img release.Image) string {
	is := func(image string) bool { return image != "" && (image == img.Pullspec || image == img.ByDigest()) }
	if u := cv.Spec.DesiredUpdate; u != nil && is(u.Image) && u.Version != "" {
		return u.Version
	}
	known := append([]configv1.Release{cv.Status.Desired}, cv.Status.AvailableUpdates...)
	for _, update := range cv.Status.ConditionalUpdates {
		known = append(known, update.Release)
	}
	for _, r := range known {
		if is(r.Image) {
			return r.Version
		}
	}
	for _, entry := range cv.Status.History {
		if is(entry.Image) {
			return entry.Version
		}
	}
	return ""
}

// noAttachments stands for the signatures that a registry keeps beside an image.
type noAttachments struct{}

// Attachments implements verify.Attachments.
func (noAttachments) Attachments(context.Context, release.Image) ([]release.Attachment, error) {
	return nil, errors.New("sigstore signatures lie beside the image in its registry, which --payload-retrieval=job does not ask: sign the release with OpenPGP and put the signature into a store or a ConfigMap, as 'cvo release sign' does")
}
