package outside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/oci/retrieve"
	"github.com/cluster-version/cvo/pkg/release"
)

// byJob is an Outside that reads releases with Jobs instead of from the registry.
type byJob struct {
	*Outside
	retriever *retrieve.Retriever
}

// RetrievedBy returns an Outside that reads releases with the retriever. If the retriever is nil, it returns o.
func (o *Outside) RetrievedBy(retriever *retrieve.Retriever) accept.Outside {
	if retriever == nil {
		return o
	}
	o.attachments, o.exist = noAttachments{}, nil
	return byJob{o, retriever}
}

// Resolve implements accept.Outside. It rejects tags, because only the registry can resolve them.
func (o byJob) Resolve(ctx context.Context, pullspec string) (release.Image, error) {
	if !release.Pullspec(pullspec).HasDigest() {
		return release.Image{}, fmt.Errorf("%q names a tag, which only the registry can resolve, but --payload-retrieval=%s does not contact the registry: name the release image by digest (name@sha256:…)", pullspec, retrieve.ByJob)
	}
	return o.Outside.Resolve(ctx, pullspec)
}

// Manifests implements accept.Outside.
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

// versionOf returns the version of an image as the ClusterVersion records it, empty if there is none.
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

// noAttachments replaces the signatures that a registry stores with an image.
type noAttachments struct{}

// Attachments implements verify.Attachments.
func (noAttachments) Attachments(context.Context, release.Image) iter.Seq2[release.Attachment, error] {
	return func(yield func(release.Attachment, error) bool) {
		yield(release.Attachment{}, errors.New("--payload-retrieval=job cannot read sigstore signatures, because they are stored in the image's registry: sign the release with OpenPGP ('cvo release sign') and put the signature into a store or a ConfigMap"))
	}
}
