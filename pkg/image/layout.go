package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/cluster-version/cvo/pkg/release"
)

// RefNameAnnotation names an image within an OCI layout (OCI image specification, pre-defined annotation keys).
const RefNameAnnotation = "org.opencontainers.image.ref.name"

// IsLayout reports whether a reference names an OCI layout on this machine: DIR, DIR:NAME or DIR@DIGEST.
func IsLayout(ref string) bool {
	_, _, ok := layoutReference(ref)
	return ok
}

// layoutReference splits DIR, DIR:NAME and DIR@DIGEST, where DIR is an OCI layout on this machine.
func layoutReference(ref string) (dir, want string, ok bool) {
	isLayout := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "oci-layout"))
		return err == nil
	}
	if isLayout(ref) {
		return ref, "", true
	}
	for _, sep := range []string{"@", ":"} {
		if i := strings.LastIndex(ref, sep); i > 0 && sep == "@" || i > 0 && !strings.Contains(ref[i:], "/") {
			if isLayout(ref[:i]) {
				return ref[:i], ref[i+1:], true
			}
		}
	}
	return "", "", false
}

// resolveLayout finds the one image of a layout that a reference names.
func resolveLayout(ref, dir, want string) (release.Image, error) {
	img, err := openLayout(dir, want)
	if err != nil {
		return release.Image{}, fmt.Errorf("opening the OCI layout %s: %w", ref, err)
	}
	digest, err := img.Digest()
	return release.Image{Pullspec: ref, Digest: release.Digest(digest.String())}, err
}

func openLayout(dir, want string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	content, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var names []string
	var found []v1.Hash
	for _, m := range content.Manifests {
		named := m.Annotations[RefNameAnnotation]
		names = append(names, strings.TrimPrefix(named+"@"+m.Digest.String(), "@"))
		if m.MediaType.IsImage() && (want == "" || want == named || want == m.Digest.String()) {
			found = append(found, m.Digest)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d of its images match: name one as %s:NAME or %s@DIGEST; it has %s", len(found), dir, dir, strings.Join(names, ", "))
	}
	img, err := index.Image(found[0])
	if err != nil {
		return nil, err
	}
	// A registry's content is checked as it comes; what lies on a disk is checked here.
	if err := validate.Image(img); err != nil {
		return nil, fmt.Errorf("checking the digests of %s: %w", found[0], err)
	}
	return img, nil
}
